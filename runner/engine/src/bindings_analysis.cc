#include <nanobind/ndarray.h>

#include <algorithm>
#include <span>
#include <vector>

#include "analysis/path_walk.h"
#include "arrays.h"
#include "bindings_common.h"

namespace chakrascope::engine {
namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> view(const Array<T>& array, std::size_t rows) {
    if (array.size() != rows)
        throw BackendError("The columns of a result are not equally long; run it again.");
    return {array.data(), array.size()};
}

void advance(PathWalk& walk, const Array<std::int64_t>& node, const Array<std::int64_t>& start,
             const Array<std::int64_t>& end, const Array<std::int64_t>& cause,
             const Array<bool>& cause_is_dependency, const Array<std::int32_t>& origin_rank,
             const Array<std::int64_t>& origin_node) {
    const std::size_t rows = node.size();
    walk.advance({view(node, rows), view(start, rows), view(end, rows), view(cause, rows),
                  view(cause_is_dependency, rows), view(origin_rank, rows), view(origin_node, rows)});
}

// Return the steps of a critical path in order of time, with one column per member of PathStep.
nb::dict steps(const PathWalk& walk) {
    const std::vector<PathStep> ordered(walk.steps().rbegin(), walk.steps().rend());
    nb::dict columns;
    const auto add = [&](const char* name, auto member) {
        columns[name] = column(ordered, [member](const PathStep& step) { return step.*member; });
    };
    add("rank", &PathStep::rank);
    add("node_id", &PathStep::node);
    add("start_ns", &PathStep::start);
    add("end_ns", &PathStep::end);
    add("origin_rank", &PathStep::origin_rank);
    add("origin_node", &PathStep::origin_node);
    add("own_start_ns", &PathStep::own_start);
    add("cause", &PathStep::cause);
    columns["cause_is_dependency"] =
        column(ordered, [](const PathStep& step) -> std::uint8_t { return step.cause_is_dependency; });
    return columns;
}

void lower(const nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& room,
           const Array<std::int32_t>& order, const Array<std::int64_t>& first,
           const Array<std::int32_t>& waiting, const Array<std::int64_t>& gap) {
    const std::span<std::int64_t> rooms(room.data(), room.size());
    const auto events = view(order, room.size());
    const auto firsts = view(first, room.size() + 1);
    const auto places = view(waiting, gap.size());
    const auto outside = [&](std::int32_t place) {
        return place < 0 || static_cast<std::size_t>(place) >= rooms.size();
    };
    if (firsts.front() != 0 || firsts.back() != static_cast<std::int64_t>(places.size()) ||
        !std::is_sorted(firsts.begin(), firsts.end()) || std::any_of(places.begin(), places.end(), outside) ||
        std::any_of(events.begin(), events.end(), outside))
        throw BackendError("The waits of a result name events that it does not have; run it again.");
    const nb::gil_scoped_release release;
    lower_room(rooms, events, firsts, places, view(gap, gap.size()));
}

}  // namespace

void bind_analysis(nb::module_& module) {
    nb::class_<PathWalk>(module, "PathWalk")
        .def(nb::init<std::int32_t, std::int64_t, std::int64_t, std::int64_t>(), nb::arg("rank"),
             nb::arg("node"), nb::arg("makespan_ns"), nb::arg("most_steps"))
        .def_prop_ro("rank", &PathWalk::rank)
        .def_prop_ro("done", &PathWalk::done)
        .def(
            "advance",
            [](PathWalk& walk, const nb::object& errors, const Array<std::int64_t>& node,
               const Array<std::int64_t>& start, const Array<std::int64_t>& end,
               const Array<std::int64_t>& cause, const Array<bool>& cause_is_dependency,
               const Array<std::int32_t>& origin_rank, const Array<std::int64_t>& origin_node) {
                translated(errors, [&] {
                    advance(walk, node, start, end, cause, cause_is_dependency, origin_rank, origin_node);
                });
            },
            nb::arg("errors"), nb::arg("node"), nb::arg("start"), nb::arg("end"), nb::arg("cause"),
            nb::arg("cause_is_dependency"), nb::arg("origin_rank"), nb::arg("origin_node"))
        .def("steps", &steps);
    module.def(
        "lower_room",
        [](const nb::object& errors,
           const nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& room,
           const Array<std::int32_t>& order, const Array<std::int64_t>& first,
           const Array<std::int32_t>& waiting, const Array<std::int64_t>& gap) {
            translated(errors, [&] { lower(room, order, first, waiting, gap); });
        },
        nb::arg("errors"), nb::arg("room").noconvert(), nb::arg("order"), nb::arg("first"),
        nb::arg("waiting"), nb::arg("gap"));
}

}  // namespace chakrascope::engine

#include "bindings_emulation.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "arrays.h"
#include "bindings_common.h"
#include "emulation/clock.h"
#include "emulation/emulation.h"
#include "emulation/tcp.h"

namespace chakrascope::engine {
namespace {

using emulation::TcpTransport;
using emulation::Transport;

constexpr emulation::Time kProgressInterval = 20'000'000;

nb::list open_operations(const EmulationOutput& output) {
    nb::list list;
    for (const OpenOperation& operation : output.open) {
        nb::dict item;
        item["node_id"] = operation.node_id;
        item["name"] = to_text(operation.name);
        item["operation"] = operation.operation;
        list.append(item);
    }
    return list;
}

nb::dict statistics(const EmulationOutput& output) {
    const Statistics& found = output.statistics;
    nb::dict item;
    item["finish_ns"] = output.finish_ns;
    item["exposed_comm_ns"] = found.exposed;
    item["compute_ns"] = found.compute;
    item["comm_ns"] = found.comm;
    item["overlap_ns"] = found.overlap;
    item["compute_bound"] = found.compute_bound;
    item["compute_utilization"] = found.compute_utilization;
    item["memory_utilization"] = found.memory_utilization;
    item["operation_intensity"] = found.operation_intensity;
    return item;
}

// Columns of a list of structures, by name.
template <class Item>
class Columns {
  public:
    explicit Columns(const std::vector<Item>& items) : items_(items) {}
    template <class Field>
    Columns& add(const char* name, Field Item::*field) {
        columns_[name] = column(items_, [field](const Item& item) { return item.*field; });
        return *this;
    }
    nb::dict done() { return columns_; }

  private:
    const std::vector<Item>& items_;
    nb::dict columns_;
};

nb::dict sent(const EmulationOutput& output) {
    return Columns(output.traffic.sent)
        .add("peer", &SentMessage::peer)
        .add("path", &SentMessage::path)
        .add("bytes", &SentMessage::bytes)
        .add("tag", &SentMessage::tag)
        .add("posted_ns", &SentMessage::posted_ns)
        .add("begun_ns", &SentMessage::begun_ns)
        .add("sent_ns", &SentMessage::sent_ns)
        .done();
}

nb::dict received(const EmulationOutput& output) {
    return Columns(output.traffic.received)
        .add("peer", &ReceivedMessage::peer)
        .add("path", &ReceivedMessage::path)
        .add("number", &ReceivedMessage::number)
        .add("begun_ns", &ReceivedMessage::begun_ns)
        .add("received_ns", &ReceivedMessage::received_ns)
        .done();
}

nb::dict nodes(EmulationOutput& output) {
    nb::dict columns;
    columns["node_index"] = to_array(std::vector(output.node_index));
    columns["node_id"] = to_array(std::vector(output.node_id));
    columns["start_ns"] = to_array(std::vector(output.node_start_ns));
    columns["end_ns"] = to_array(std::vector(output.node_end_ns));
    columns["cause_node"] = to_array(std::vector(output.node_cause));
    columns["cause_is_dependency"] = to_array(std::vector(output.node_cause_is_dependency));
    columns["origin_rank"] = to_array(std::vector(output.node_origin_rank));
    columns["origin_index"] = to_array(std::vector(output.node_origin_index));
    return columns;
}

EmulationOutput run(const Config& config, const nb::list& sources,
                    const std::vector<std::int32_t>& program_of_rank, std::int32_t rank, Transport& transport,
                    emulation::Time start, const nb::object& callback) {
    const auto programs = load_programs(sources);
    const auto progress = [&callback, next = emulation::Time{0}](const EmulationProgress& now) mutable {
        if (emulation::monotonic_ns() < next) return true;
        next = emulation::monotonic_ns() + kProgressInterval;
        const nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        return nb::cast<bool>(callback(now.now_ns, now.finished, now.traffic.waiting, now.traffic.sent.size(),
                                       now.traffic.received.size()));
    };
    const nb::gil_scoped_release release;
    return emulate(config, programs, program_of_rank, rank, transport, start, progress);
}

void bind_output(nb::module_& module) {
    nb::class_<EmulationOutput>(module, "EmulationOutput")
        .def_ro("finish_ns", &EmulationOutput::finish_ns)
        .def_ro("nodes_total", &EmulationOutput::nodes_total)
        .def_ro("nodes_executed", &EmulationOutput::nodes_executed)
        .def_ro("events", &EmulationOutput::events)
        .def_ro("overtaken", &EmulationOutput::overtaken)
        .def_prop_ro("statistics", &statistics)
        .def_prop_ro("nodes", &nodes)
        .def_prop_ro("sent", &sent)
        .def_prop_ro("received", &received)
        .def_prop_ro("open", &open_operations);
}

void bind_transports(nb::module_& module) {
    nb::class_<Transport>(module, "Transport");
    using Connection = std::tuple<int, std::int32_t, std::int32_t>;
    nb::class_<TcpTransport, Transport>(module, "TcpTransport")
        .def(
            "__init__",
            [](TcpTransport* place, const nb::object& errors, const std::vector<Connection>& connections) {
                std::vector<TcpTransport::Connection> ends;
                for (const auto& [socket, peer, path] : connections) ends.push_back({socket, peer, path});
                translated(errors, [&] { return new (place) TcpTransport(ends); });
            },
            nb::arg("errors"), nb::arg("connections"));
}

}  // namespace

void bind_emulation(nb::module_& module) {
    bind_output(module);
    bind_transports(module);
    module.def(
        "emulate",
        [](const nb::object& errors, const Config& config, const nb::list& programs,
           const std::vector<std::int32_t>& program_of_rank, std::int32_t rank, Transport& transport,
           std::uint64_t start_ns, const nb::object& progress) {
            return translated(errors, [&] {
                return run(config, programs, program_of_rank, rank, transport, start_ns, progress);
            });
        },
        nb::arg("errors"), nb::arg("config"), nb::arg("programs"), nb::arg("program_of_rank"),
        nb::arg("rank"), nb::arg("transport"), nb::arg("start_ns"), nb::arg("progress"));
}

}  // namespace chakrascope::engine

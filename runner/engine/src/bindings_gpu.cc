#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings_common.h"
#include "config.h"
#include "gpu/replay.h"

namespace nb = nanobind;

namespace chakrascope::gpu {
namespace {

using engine::column;
using engine::throttle;
using engine::translated;

// Create a machine from its parameters, which are named by their paths in the machine's description.
// Every parameter is required.
Machine machine_of(const nb::dict& figures) {
    Machine machine;
#define MACHINE_FIELD(path, type, member, value) machine.member = nb::cast<type>(figures[path]);
#include "gpu/machine.def"
#undef MACHINE_FIELD
    return machine;
}

void bind_machine(nb::module_& module) {
    nb::class_<Machine>(module, "GpuMachine").def("__init__", [](Machine* place, const nb::dict& figures) {
        new (place) Machine(machine_of(figures));
    });
    nb::list paths;
#define MACHINE_FIELD(path, type, member, value) paths.append(path);
#include "gpu/machine.def"
#undef MACHINE_FIELD
    module.attr("MACHINE_FIGURES") = nb::tuple(paths);
}

// A location that an operation reads or writes, as passed from Python: rank, switch group, bytes moved
// per byte of data, counter. AskedUse is a counter that an operation changes or waits for: rank,
// counter, value.
using AskedAccess = std::tuple<std::int32_t, std::int32_t, double, std::int32_t>;
using AskedUse = std::tuple<std::int32_t, std::int32_t, std::int64_t>;
// An operation as passed from Python: kind, place, bytes, ns, sources, destinations, counters.
using AskedOp = std::tuple<OpKind, std::int32_t, std::uint64_t, double, std::vector<AskedAccess>,
                           std::vector<AskedAccess>, std::vector<AskedUse>>;

void add_op(Program& program, const AskedOp& asked) {
    const auto& [kind, place, bytes, ns, sources, targets, uses] = asked;
    Op& op = program.ops.emplace_back();
    op.kind = kind;
    op.place = place;
    op.bytes = bytes;
    op.ns = ns;
    const auto add = [&](const std::vector<AskedAccess>& accesses, std::uint32_t& first,
                         std::uint32_t& count) {
        first = static_cast<std::uint32_t>(program.accesses.size());
        count = static_cast<std::uint32_t>(accesses.size());
        for (const auto& [rank, group, wire, counter] : accesses)
            program.accesses.push_back({rank, group, wire, counter});
    };
    add(sources, op.first_source, op.sources);
    add(targets, op.first_target, op.targets);
    op.first_use = static_cast<std::uint32_t>(program.uses.size());
    op.uses = static_cast<std::uint32_t>(uses.size());
    for (const auto& [rank, counter, value] : uses) program.uses.push_back({rank, counter, value});
}

void bind_program(nb::module_& module) {
    nb::class_<Program>(module, "GpuProgram")
        .def(nb::init<>())
        .def_rw("name", &Program::name)
        .def_rw("copies", &Program::copies)
        .def_rw("groups", &Program::groups)
        .def_rw("counters", &Program::counters)
        .def("add_rank", [](Program& program) { program.ranks.emplace_back(); })
        .def("add_workgroup", [](Program& program, std::int32_t wavefronts, const std::vector<AskedOp>& ops) {
            const auto first = static_cast<std::uint32_t>(program.ops.size());
            for (const AskedOp& op : ops) add_op(program, op);
            const auto last = static_cast<std::uint32_t>(program.ops.size());
            program.ranks.back().push_back({first, last, wavefronts});
        });
    nb::enum_<OpKind>(module, "GpuOp")
        .value("DATA", OpKind::Data)
        .value("SIGNAL", OpKind::Signal)
        .value("TAKE", OpKind::Take)
        .value("AWAIT", OpKind::Await)
        .value("SYNC", OpKind::Sync)
        .value("BARRIER", OpKind::Barrier)
        .value("FENCE", OpKind::Fence)
        .value("PROXY", OpKind::Proxy)
        .value("FLUSH", OpKind::Flush)
        .value("PAUSE", OpKind::Pause);
}

nb::dict counts_of(const Replay& replay) {
    nb::dict counts;
    counts["asked_lines"] = replay.counts.asked_lines;
    counts["loaded_lines"] = replay.counts.loaded_lines;
    counts["stored_lines"] = replay.counts.stored_lines;
    counts["delivered_lines"] = replay.counts.delivered_lines;
    counts["controls"] = replay.counts.controls;
    counts["transfers"] = replay.counts.transfers;
    counts["events"] = replay.events;
    counts["least_credit"] = replay.least_credit;
    counts["most_credit"] = replay.most_credit;
    return counts;
}

void bind_replay(nb::module_& module) {
    nb::class_<Replay>(module, "GpuReplay")
        .def_prop_ro(
            "rank_ns",
            [](const Replay& replay) { return column(replay.rank_end, [](Fs end) { return to_ns(end); }); })
        .def_prop_ro("stamps",
                     [](const Replay& replay) {
                         const auto& stamps = replay.stamps;
                         nb::dict table;
                         table["rank"] = column(stamps, [](const Stamp& s) { return s.member; });
                         table["block"] = column(stamps, [](const Stamp& s) { return s.workgroup; });
                         table["place"] = column(stamps, [](const Stamp& s) { return s.place; });
                         table["start_ns"] = column(stamps, [](const Stamp& s) { return to_ns(s.start); });
                         table["end_ns"] = column(stamps, [](const Stamp& s) { return to_ns(s.end); });
                         return table;
                     })
        .def_prop_ro(
            "links",
            [](const Replay& replay) {
                const auto& links = replay.links;
                nb::dict table;
                table["src"] = column(links, [](const LinkReport& l) { return l.source; });
                table["dst"] = column(links, [](const LinkReport& l) { return l.destination; });
                table["bytes"] =
                    column(links, [](const LinkReport& l) { return static_cast<std::int64_t>(l.bytes); });
                table["lines"] =
                    column(links, [](const LinkReport& l) { return static_cast<std::int64_t>(l.lines); });
                table["busy_ns"] = column(links, [](const LinkReport& l) { return to_ns(l.busy); });
                table["queue_ns"] = column(links, [](const LinkReport& l) { return to_ns(l.queued); });
                return table;
            })
        .def_prop_ro("counts", &counts_of)
        .def_prop_ro("stuck", [](const Replay& replay) {
            nb::list list;
            for (const Stuck& stuck : replay.stuck)
                list.append(nb::make_tuple(stuck.member, stuck.workgroup, stuck.place,
                                           static_cast<int>(stuck.waits)));
            return list;
        });
}

// Bind the configuration of the GPU model. Collectives of the same kind, group and size share a
// program.
void bind_config(nb::module_& module) {
    nb::class_<engine::GpuConfig>(module, "GpuConfig")
        .def(nb::init<>())
        .def_rw("machine", &engine::GpuConfig::machine)
        .def_rw("detailed", &engine::GpuConfig::detailed)
        .def(
            "add_collective",
            [](engine::GpuConfig& config, int kind, std::int64_t group, std::uint64_t bytes,
               const std::vector<std::int32_t>& members, std::shared_ptr<Program> program) {
                config.collectives.push_back({kind, group, bytes, members, std::move(program)});
            },
            nb::arg("kind"), nb::arg("group"), nb::arg("size_bytes"), nb::arg("members"),
            nb::arg("program").none());
}

void bind_functions(nb::module_& module) {
    bind_machine(module);
    bind_program(module);
    bind_replay(module);
    bind_config(module);
    module.def(
        "replay_gpu_program",
        [](const nb::object& errors, const Machine& machine, const Program& program, bool detailed,
           bool stamps, const nb::object& callback) {
            return translated(errors, [&] {
                const auto progress = throttle(callback);
                const nb::gil_scoped_release release;
                return replay(machine, program, {detailed, stamps}, progress);
            });
        },
        nb::arg("errors"), nb::arg("machine"), nb::arg("program"), nb::arg("detailed"), nb::arg("stamps"),
        nb::arg("progress").none());
}

}  // namespace
}  // namespace chakrascope::gpu

namespace chakrascope::engine {

void bind_gpu(nb::module_& module) { gpu::bind_functions(module); }

}  // namespace chakrascope::engine

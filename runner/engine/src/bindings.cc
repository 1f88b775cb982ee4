// The Python bindings of the engine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <set>

#include "arrays.h"
#include "bindings_common.h"
#include "collective/implementation.h"
#include "collective/refusals.h"
#include "fields.h"
#include "network/topology.h"
#include "simulation/columns.h"
#include "simulation/simulation.h"

namespace nb = nanobind;
using namespace chakrascope::engine;

namespace {

Output run(const Config& config, const nb::list& sources, const std::vector<std::int32_t>& program_of_rank,
           const nb::object& callback) {
    const Progress progress = throttle(callback);
    const auto programs = load_programs(sources, progress);
    const nb::gil_scoped_release release;
    return simulate(config, programs, program_of_rank, progress);
}

template <class Names>
nb::tuple to_tuple(const Names& names) {
    nb::list list;
    for (const auto& name : names) list.append(nb::cast(std::string(name)));
    return nb::tuple(list);
}

const char* name_of(FieldOrigin origin) {
    constexpr std::array names{"system", "memory", "network", "experiment", "run", "local"};
    return names.at(static_cast<std::size_t>(origin));
}

// Return the word for an enum value; return any other value unchanged.
template <class T>
auto to_python(const T& value, const Values& valid) {
    if constexpr (std::is_enum_v<T>) {
        return valid.words.at(static_cast<std::size_t>(value));
    } else {
        return value;
    }
}

template <class T>
void bind_field(nb::class_<Config>& config, const char* name, T Config::*member, const Values& valid) {
    if constexpr (std::is_enum_v<T>) {
        config.def_prop_rw(
            name, [member, valid](const Config& self) { return to_python(self.*member, valid); },
            [name, member, valid](Config& self, const std::string& word) {
                try {
                    self.*member = static_cast<T>(place_of_word(name, word, valid));
                } catch (const ConfigError& error) {
                    throw nb::value_error(error.what());
                }
            });
    } else {
        config.def_rw(name, member);
    }
}

// Return the name, origin, default, smallest and largest value, and valid words of each field.
nb::tuple fields_of_config() {
    nb::list rows;
    const Config config;
    const auto add = [&](const char* name, FieldOrigin origin, const auto& value, const Values& valid) {
        rows.append(nb::make_tuple(name, name_of(origin), to_python(value, valid), valid.smallest,
                                   valid.largest, to_tuple(valid.words)));
    };
#define ENGINE_FIELD(origin, type, member, value, values) \
    add(#member, FieldOrigin::origin, config.member, values);
#include "config.def"
#undef ENGINE_FIELD
    return nb::tuple(rows);
}

// Set the sync points at which ranks wait for each other, and the start time of each rank. Each row is
// one member of a sync point.
void set_sync_points(Config& config, const std::vector<std::int32_t>& rank,
                     const std::vector<std::uint64_t>& node_id, const std::vector<std::uint32_t>& point,
                     const std::vector<std::int64_t>& wait_ns, const std::vector<std::int64_t>& begin_ns) {
    if (node_id.size() != rank.size() || point.size() != rank.size() || wait_ns.size() != rank.size())
        throw nb::value_error("the columns differ in length");
    config.sync_members.clear();
    for (std::size_t i = 0; i < rank.size(); ++i)
        config.sync_members.push_back({rank[i], node_id[i], point[i], wait_ns[i]});
    config.begin_ns = begin_ns;
}

void bind_config(nb::module_& module) {
    nb::class_<Config> config(module, "Config");
    config.def(nb::init<>());
#define ENGINE_FIELD(origin, type, member, value, values) \
    bind_field(config, #member, &Config::member, values);
#include "config.def"
#undef ENGINE_FIELD
    module.attr("ENGINE_FIELDS") = fields_of_config();
    config.def_rw("external_network", &Config::external_network)
        .def_rw("network_model", &Config::network_model)
        .def_rw("gpu", &Config::gpu)
        .def(
            "set_fabric",
            [](Config& config, nb::handle fabric) {
                config.fabric = fabric_of(fabric);
                config.packet = packet_settings_of(fabric);
            },
            nb::arg("fabric"))
        .def("add_program",
             [](Config& config, const std::string& collective, std::int64_t members, std::uint64_t size,
                const std::string& name, const std::vector<nb::bytes>& graphs) {
                 CollectiveProgram program{collective, members, size, name, {}};
                 for (const nb::bytes& graph : graphs)
                     program.graphs.emplace_back(graph.c_str(), graph.size());
                 config.collective_programs.push_back(std::move(program));
             })
        .def("set_sync_points", &set_sync_points, nb::arg("rank"), nb::arg("node_id"), nb::arg("point"),
             nb::arg("wait_ns"), nb::arg("begin_ns"))
        .def_prop_ro("collective_programs", [](const Config& config) {
            nb::list found;
            for (const CollectiveProgram& program : config.collective_programs) {
                nb::list graphs;
                for (const std::string& graph : program.graphs)
                    graphs.append(nb::bytes(graph.data(), graph.size()));
                found.append(
                    nb::make_tuple(program.collective, program.members, program.size, program.name, graphs));
            }
            return found;
        });
}

// Return the fields that all kinds of unfinished operations share.
template <class Operation>
nb::dict facts_of(const Operation& operation) {
    nb::dict item;
    item["rank"] = operation.rank;
    item["node_id"] = operation.node_id;
    item["name"] = to_text(operation.name);
    item["operation"] = operation.operation;
    return item;
}

nb::list unfinished(const Output& output) {
    nb::list list;
    for (const Stall& stall : output.unfinished) {
        nb::dict item = facts_of(stall);
        item["waits_for"] = stall.waits_for;
        list.append(item);
    }
    return list;
}

nb::list deadlock(const Output& output) {
    nb::list list;
    for (const Blocked& blocked : output.deadlock) {
        nb::dict item = facts_of(blocked);
        item["begun"] = blocked.begun;
        list.append(item);
    }
    return list;
}

template <class Field>
nb::object of_ranks(const Output& output, Field field) {
    return column(output.rank_statistics, [field](const Statistics& item) { return item.*field; });
}

template <class Field>
nb::object of_links(const Output& output, Field field) {
    return column(output.links, [field](const LinkUse& item) {
        if constexpr (std::is_same_v<Field, std::int32_t LinkUse::*>) {
            return item.*field;
        } else {
            return static_cast<std::int64_t>(item.*field);
        }
    });
}

nb::dict nodes(const Output& output, std::size_t first, std::size_t last) {
    const std::size_t end = std::min(last, output.nodes.size());
    NodeColumns columns = [&] {
        const nb::gil_scoped_release release;
        return node_columns(output, std::min(first, end), end);
    }();
    nb::dict table;
    table["rank"] = to_array(std::move(columns.rank));
    table["node_id"] = to_array(std::move(columns.node_id));
    table["start_ns"] = to_array(std::move(columns.start_ns));
    table["end_ns"] = to_array(std::move(columns.end_ns));
    table["cause_node"] = to_array(std::move(columns.cause));
    table["cause_is_dependency"] = to_array(std::move(columns.cause_is_dependency));
    table["origin_rank"] = to_array(std::move(columns.origin_rank));
    table["origin_node"] = to_array(std::move(columns.origin_node));
    return table;
}

nb::dict collectives_of(const Output& output, bool of_all) {
    CollectiveColumns columns = [&] {
        const nb::gil_scoped_release release;
        return collective_columns(output, of_all);
    }();
    nb::dict table;
    table["rank"] = to_array(std::move(columns.rank));
    table["node_id"] = to_array(std::move(columns.node_id));
    table["start_ns"] = to_array(std::move(columns.start_ns));
    table["end_ns"] = to_array(std::move(columns.end_ns));
    table["origin_start_ns"] = to_array(std::move(columns.origin_start_ns));
    table["comm_type"] = to_array(std::move(columns.comm_type));
    table["group"] = to_array(std::move(columns.group));
    table["size_bytes"] = to_array(std::move(columns.size_bytes));
    return table;
}

// Return, for the most undercharged message, its source, destination, bytes, charged time, and time
// over all dimensions. Returns None if no message is undercharged.
nb::object undercharged(const Output& output) {
    const Undercharged& worst = output.undercharged;
    if (worst.whole == 0) return nb::none();
    return nb::make_tuple(worst.route.source, worst.route.destination, worst.size, worst.charged,
                          worst.whole);
}

// Bind the output of a simulation. Each column is copied into an array that outlives the output.
void bind_output(nb::module_& module) {
    nb::class_<Output>(module, "Output")
        .def_ro("makespan_ns", &Output::makespan_ns)
        .def_ro("nodes_total", &Output::nodes_total)
        .def_ro("nodes_executed", &Output::nodes_executed)
        .def_ro("events", &Output::events)
        .def_ro("folded", &Output::folded)
        .def_ro("overtaking", &Output::overtaking)
        .def_ro("overtaken", &Output::overtaken)
        .def_ro("replayed", &Output::replayed)
        .def_ro("evened", &Output::evened)
        .def_prop_ro("undercharged", &undercharged)
        .def_prop_ro("unfinished", &unfinished)
        .def_prop_ro("deadlock", &deadlock)
        .def_prop_ro("rank_finish_ns", [](Output& o) { return to_array(std::vector(o.rank_finish_ns)); })
        .def_prop_ro("finish_order", [](Output& o) { return to_array(std::vector(o.finish_order)); })
        .def_prop_ro("rank_representative",
                     [](Output& o) { return to_array(std::vector(o.rank_representative)); })
        .def_prop_ro("rank_exposed_comm_ns", [](Output& o) { return of_ranks(o, &Statistics::exposed); })
        .def_prop_ro("rank_compute_ns", [](Output& o) { return of_ranks(o, &Statistics::compute); })
        .def_prop_ro("rank_comm_ns", [](Output& o) { return of_ranks(o, &Statistics::comm); })
        .def_prop_ro("rank_overlap_ns", [](Output& o) { return of_ranks(o, &Statistics::overlap); })
        .def_prop_ro("rank_copy_ns", [](Output& o) { return of_ranks(o, &Statistics::copy); })
        .def_prop_ro("rank_exposed_copy_ns", [](Output& o) { return of_ranks(o, &Statistics::exposed_copy); })
        .def_prop_ro("rank_compute_bound", [](Output& o) { return of_ranks(o, &Statistics::compute_bound); })
        .def_prop_ro("rank_compute_utilization",
                     [](Output& o) { return of_ranks(o, &Statistics::compute_utilization); })
        .def_prop_ro("rank_memory_utilization",
                     [](Output& o) { return of_ranks(o, &Statistics::memory_utilization); })
        .def_prop_ro("rank_operation_intensity",
                     [](Output& o) { return of_ranks(o, &Statistics::operation_intensity); })
        .def_prop_ro("node_counts",
                     [](Output& o) {
                         return column(o.nodes, [](const RankNodes& nodes) {
                             return static_cast<std::int64_t>(nodes.executed);
                         });
                     })
        .def("nodes", &nodes, nb::arg("first"), nb::arg("last"))
        .def("collectives", &collectives_of, nb::arg("of_all"))
        .def_prop_ro("link_src", [](Output& o) { return of_links(o, &LinkUse::source); })
        .def_prop_ro("link_dst", [](Output& o) { return of_links(o, &LinkUse::destination); })
        .def_prop_ro("link_bytes", [](Output& o) { return of_links(o, &LinkUse::bytes); })
        .def_prop_ro("link_busy_ns", [](Output& o) { return of_links(o, &LinkUse::busy); })
        .def_prop_ro("link_queue_ns", [](Output& o) { return of_links(o, &LinkUse::queued); })
        .def_prop_ro("link_messages", [](Output& o) { return of_links(o, &LinkUse::messages); })
        .def_ro("fabric", &Output::fabric)
        .def_prop_ro(
            "gpu_compute_ns",
            [](Output& o) { return column(o.gpu_use, [](const GpuUse& use) { return use.compute_ns; }); })
        .def_prop_ro("gpu_alone_ns", [](Output& o) {
            return column(o.gpu_use, [](const GpuUse& use) { return use.alone_ns; });
        });
}

// A collective as passed from Python: its number in Chakra's schema, its group, its bytes, a bit mask
// of the dimensions that take part, and the id of its node.
using AskedCollective = std::tuple<int, std::int64_t, std::uint64_t, std::uint8_t, std::uint64_t>;

std::vector<std::string> refusals(const Config& config, const std::vector<AskedCollective>& asked) {
    std::vector<Node> nodes;
    for (const auto& [type, group, size, involved, id] : asked) {
        Node& node = nodes.emplace_back();
        node.id = id;
        node.type = NodeType::Coll;
        node.comm_type = static_cast<CommType>(type);
        node.group = group;
        node.comm_size = size;
        node.involved_dims = involved;
    }
    const nb::gil_scoped_release release;
    return find_refusals(config, nodes);
}

// The number of programs that are decoded together: enough to occupy all processors, but few enough to
// limit the memory for a large workload.
constexpr std::ptrdiff_t kDecodedTogether = 32;

std::vector<AskedCollective> collectives(const nb::list& sources, const std::vector<std::uint64_t>& apart,
                                         bool sizes) {
    const std::vector<ProgramSource> every = sources_of(sources);
    const nb::gil_scoped_release release;
    const std::set<std::uint64_t> ids(apart.begin(), apart.end());
    std::set<AskedCollective> found;
    for (auto first = every.begin(); first != every.end();) {
        const auto last = first + std::min(kDecodedTogether, every.end() - first);
        const auto programs = decode_programs({first, last}, [] {});
        for (const auto& program : std::set(programs.begin(), programs.end())) {
            for (const Node& node : distinct_collectives(*program, ids, sizes)) {
                found.emplace(static_cast<int>(node.comm_type), node.group, node.comm_size,
                              node.involved_dims, node.id);
            }
        }
        first = last;
    }
    return {found.begin(), found.end()};
}

bool is_algorithm(const std::string& name) {
    try {
        parse_algorithm(name, "");
        return true;
    } catch (const ConfigError&) {
        return false;
    }
}

// Bind the names that the engine accepts in configurations.
void bind_names(nb::module_& module) {
    std::vector<std::string> collectives;
    for (std::size_t kind = 0; kind < kConfigured; ++kind)
        collectives.push_back(key_name_of(static_cast<Collective>(kind)));
    module.attr("TOPOLOGIES") = to_tuple(kTopologies);
    module.attr("COLLECTIVES") = to_tuple(collectives);
    module.attr("ALGORITHMS") = to_tuple(algorithm_names(false));
    module.attr("WHOLE_ALGORITHMS") = to_tuple(algorithm_names(true));
    module.attr("WINDOWED_ALGORITHMS") = to_tuple(windowed_algorithms());
    module.def("is_algorithm", &is_algorithm, nb::arg("name"));
}

}  // namespace

NB_MODULE(_engine, module) {
    // The frames of an exception that ends the program hold references to these objects, which would be
    // reported as leaks.
    nb::set_leak_warnings(false);
    module.doc() = "Simulate Chakra execution traces on an analytical network.";
    bind_fabric(module);
    bind_gpu(module);
    bind_emulation(module);
    bind_analysis(module);
    bind_config(module);
    bind_output(module);
    bind_names(module);
    module.def(
        "simulate",
        [](const nb::object& errors, const Config& config, const nb::list& programs,
           const std::vector<std::int32_t>& program_of_rank, const nb::object& progress) {
            return translated(errors, [&] { return run(config, programs, program_of_rank, progress); });
        },
        nb::arg("errors"), nb::arg("config"), nb::arg("programs"), nb::arg("program_of_rank"),
        nb::arg("progress").none());
    module.def(
        "collectives",
        [](const nb::object& errors, const nb::list& programs, const std::vector<std::uint64_t>& apart,
           bool sizes) { return translated(errors, [&] { return collectives(programs, apart, sizes); }); },
        nb::arg("errors"), nb::arg("programs"), nb::arg("apart"), nb::arg("sizes"));
    module.def(
        "refusals",
        [](const nb::object& errors, const Config& config, const std::vector<AskedCollective>& collectives) {
            return translated(errors, [&] { return refusals(config, collectives); });
        },
        nb::arg("errors"), nb::arg("config"), nb::arg("collectives"));
}

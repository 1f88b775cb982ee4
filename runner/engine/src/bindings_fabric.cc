#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "arrays.h"
#include "bindings_common.h"
#include "config.h"
#include "errors.h"
#include "fabric/report.h"
#include "fabric/routes.h"
#include "fields.h"
#include "packet/simulation.h"

namespace chakrascope::engine {
namespace {

constexpr double kLargest32 = std::numeric_limits<std::uint32_t>::max();
constexpr double kLargestMiB = (1ull << 43) - 1;  // below 2^63 bytes
constexpr double kLongestUs = 9e12;               // below 2^63 ps
constexpr double kLargestNumber = 1e18;

using packet::Control;
using packet::Settings;
using packet::Unit;

// Convert a Python value to a setting of the packet model. Rates are in bit/s.
template <class T>
T setting_of(nb::handle value, Unit unit) {
    if constexpr (std::is_same_v<T, bool>) {
        return nb::cast<int>(value) != 0;
    } else if constexpr (std::is_enum_v<T>) {
        return static_cast<T>(nb::cast<int>(value));
    } else if (unit == Unit::Microseconds) {
        return static_cast<T>(nb::cast<double>(value) * scale_of(unit));
    } else {
        const T scale = unit == Unit::Mebibytes ? static_cast<T>(scale_of(unit)) : T{1};
        return nb::cast<T>(value) * scale;
    }
}

// Return packet settings with the values of `given`, which has the keys of config.txt. Other keys are
// ignored.
Settings settings_of(const nb::dict& given) {
    Settings settings;
#define PACKET_SETTING(key, type, member, value, unit, smallest, largest) \
    if (given.contains(#key)) settings.member = setting_of<type>(given[#key], Unit::unit);
#define PACKET_TABLE(key, member) \
    if (given.contains(#key)) settings.member = nb::cast<Settings::ByRate>(given[#key]);
#include "packet/settings.def"
#undef PACKET_SETTING
#undef PACKET_TABLE
    return settings;
}

template <class T>
const char* kind_of(Unit unit) {
    if (std::is_same_v<T, bool>) return "flag";
    if (unit == Unit::MegabitsPerSecond) return "rate";
    return std::is_floating_point_v<T> || unit == Unit::Microseconds ? "number" : "integer";
}

void bind_packet_settings(nb::module_& module) {
    nb::list rows;
#define PACKET_SETTING(key, type, member, value, unit, smallest, largest) \
    rows.append(nb::make_tuple(#key, kind_of<type>(Unit::unit), value, smallest, largest));
#define PACKET_TABLE(key, member) rows.append(nb::make_tuple(#key, "map", nb::dict(), 0, kLargestNumber));
#include "packet/settings.def"
#undef PACKET_SETTING
#undef PACKET_TABLE
    module.attr("PACKET_SETTINGS") = nb::tuple(rows);
    nb::list controls;
    for (const Control control : packet::kControls) controls.append(static_cast<int>(control));
    module.attr("CONGESTION_CONTROLS") = nb::tuple(controls);
    module.attr("PORT_RESERVE_BYTES") = packet::kReserveBytes;
}

// Return the columns of a table, by name.
template <class Item, class... Fields>
nb::dict table(const std::vector<Item>& items, const std::pair<const char*, Fields Item::*>&... columns) {
    nb::dict result;
    const auto add = [&](const auto& name_and_field) {
        const auto field = name_and_field.second;
        result[name_and_field.first] = column(items, [field](const Item& item) {
            if constexpr (std::is_unsigned_v<std::decay_t<decltype(item.*field)>>) {
                return static_cast<std::int64_t>(item.*field);
            } else {
                return item.*field;
            }
        });
    };
    (add(columns), ...);
    return result;
}

template <class Item, class Field>
std::pair<const char*, Field Item::*> named(const char* name, Field Item::*field) {
    return {name, field};
}

void bind_report(nb::module_& module) {
    nb::class_<FabricReport>(module, "FabricReport")
        .def_prop_ro("flows",
                     [](const FabricReport& report) {
                         using Row = FlowRecord;
                         return table(report.flows, named("src", &Row::source),
                                      named("dst", &Row::destination), named("bytes", &Row::bytes),
                                      named("start_ns", &Row::start_ns), named("end_ns", &Row::end_ns));
                     })
        .def_prop_ro("links",
                     [](const FabricReport& report) {
                         using Row = FabricLinkUse;
                         return table(report.links, named("src", &Row::source),
                                      named("dst", &Row::destination), named("bytes", &Row::bytes),
                                      named("busy_ps", &Row::busy), named("queue_ps", &Row::queued),
                                      named("paused_ps", &Row::paused), named("packets", &Row::packets),
                                      named("pauses", &Row::pauses), named("drops", &Row::drops),
                                      named("largest_queue_bytes", &Row::largest_queue_bytes));
                     })
        .def_prop_ro("intervals",
                     [](const FabricReport& report) {
                         using Row = LinkInterval;
                         return table(report.intervals, named("src", &Row::source),
                                      named("dst", &Row::destination), named("start_ns", &Row::start_ns),
                                      named("end_ns", &Row::end_ns), named("bytes", &Row::bytes));
                     })
        .def_ro("flags", &FabricReport::flags)
        .def_prop_ro("changes",
                     [](const FabricReport& report) {
                         using Row = ChangeRecord;
                         return table(report.changes, named("time_ns", &Row::time_ns),
                                      named("lost", &Row::lost), named("rerouted", &Row::rerouted),
                                      named("waiting", &Row::waiting));
                     })
        .def_ro("data_packets", &FabricReport::data_packets)
        .def_ro("events", &FabricReport::events)
        .def_ro("largest_train", &FabricReport::largest_train)
        .def_ro("split_trains", &FabricReport::split_trains);
}

void bind_models(nb::module_& module) {
    using chakrascope::packet::Completion;
    using chakrascope::packet::Simulation;
    nb::class_<Routes>(module, "Routes")
        .def(
            "__init__",
            [](Routes* place, nb::handle fabric, Ticks step) { new (place) Routes(fabric_of(fabric), step); },
            nb::arg("fabric"), nb::arg("step") = 1)
        .def("path", &Routes::path, nb::arg("source"), nb::arg("destination"), nb::arg("ports"))
        .def("measure",
             [](Routes& routes, std::int32_t source, std::int32_t destination, std::uint32_t payload_bytes) {
                 const PathMeasure measured = routes.measure(source, destination, payload_bytes);
                 return std::pair(measured.rtt, measured.product_bytes);
             });

    nb::class_<Simulation>(module, "PacketSimulation")
        .def(
            "__init__",
            [](Simulation* place, nb::handle fabric) {
                new (place) Simulation(fabric_of(fabric), packet_settings_of(fabric));
            },
            nb::arg("fabric"))
        .def("send", &Simulation::send, nb::arg("message"), nb::arg("source"), nb::arg("destination"),
             nb::arg("bytes"), nb::arg("time_ps"))
        .def(
            "run",
            [](Simulation& simulation, Ticks limit) {
                std::vector<std::pair<std::uint64_t, Ticks>> arrivals;
                const nb::gil_scoped_release release;
                for (const Completion& item : simulation.run(limit, [](Ticks) { return true; }))
                    arrivals.emplace_back(item.message, item.time);
                return arrivals;
            },
            nb::arg("limit_ps"))
        .def("report", &Simulation::report);
}

}  // namespace

Fabric fabric_of(nb::handle given) {
    using GivenLink = std::tuple<std::int32_t, std::int32_t, std::uint64_t, std::int64_t, double>;
    using GivenChange = std::tuple<std::int64_t, std::uint32_t, std::uint64_t>;
    Fabric fabric;
    fabric.nodes = nb::cast<std::int32_t>(given.attr("nodes"));
    fabric.switches = nb::cast<std::vector<std::int32_t>>(given.attr("switches"));
    fabric.hosts = nb::cast<std::vector<std::int32_t>>(given.attr("hosts"));
    for (nb::handle link : given.attr("links")) {
        const auto [a, b, rate_bps, delay_ps, loss] = nb::cast<GivenLink>(link);
        fabric.links.push_back({a, b, rate_bps, delay_ps, loss});
    }
    for (nb::handle change : given.attr("changes")) {
        const auto [time_ns, link, rate_bps] = nb::cast<GivenChange>(change);
        fabric.changes.push_back({time_ns * kTicksPerNs, link, rate_bps});
    }
    return fabric;
}

packet::Settings packet_settings_of(nb::handle fabric) {
    return settings_of(nb::cast<nb::dict>(fabric.attr("settings")));
}

void bind_fabric(nb::module_& module) {
    nb::enum_<NetworkModel>(module, "NetworkModel")
        .value("UNAWARE", NetworkModel::Unaware)
        .value("AWARE", NetworkModel::Aware)
        .value("FLOW", NetworkModel::Flow)
        .value("PACKET", NetworkModel::Packet);
    bind_packet_settings(module);
    bind_report(module);
    bind_models(module);
}

}  // namespace chakrascope::engine

#include "bindings_fabric.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "arrays.h"
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

// Return a setting from the value that Python reads; rates are read in bit/s.
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

// Return settings with the values that `given` has by the keys of config.txt; it may have others.
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
    nb::class_<Settings>(module, "PacketSettings")
        .def(
            "__init__",
            [](Settings* place, const nb::dict& values) { new (place) Settings(settings_of(values)); },
            nb::arg("values"));
    nb::list rows;
#define PACKET_SETTING(key, type, member, value, unit, smallest, largest) \
    rows.append(nb::make_tuple(#key, kind_of<type>(Unit::unit), value, smallest, largest));
#define PACKET_TABLE(key, member) rows.append(nb::make_tuple(#key, "map", nb::dict(), 0, kLargestNumber));
#include "packet/settings.def"
#undef PACKET_SETTING
#undef PACKET_TABLE
    module.attr("PACKET_SETTINGS") = nb::tuple(rows);
}

// A link of a fabric as Python passes it: both nodes, bit/s, ps, and the share of packets it loses.
using AskedLink = std::tuple<std::int32_t, std::int32_t, std::uint64_t, std::int64_t, double>;

// Changes of links: the time (ps), the link, and its new rate (bit/s).
using AskedChange = std::tuple<Ticks, std::uint32_t, std::uint64_t>;

void bind_description(nb::module_& module) {
    nb::enum_<FabricModel>(module, "FabricModel")
        .value("NONE", FabricModel::None)
        .value("FLOW", FabricModel::Flow)
        .value("PACKET", FabricModel::Packet);
    nb::class_<FabricDescription>(module, "FabricDescription")
        .def(nb::init<>())
        .def_rw("nodes", &FabricDescription::nodes)
        .def_rw("switches", &FabricDescription::switches)
        .def_rw("hosts", &FabricDescription::hosts)
        .def_prop_rw(
            "links",
            [](const FabricDescription& fabric) {
                std::vector<AskedLink> links;
                for (const FabricLink& link : fabric.links)
                    links.emplace_back(link.a, link.b, link.rate_bps, link.delay_ps, link.loss);
                return links;
            },
            [](FabricDescription& fabric, const std::vector<AskedLink>& links) {
                fabric.links.clear();
                for (const auto& [a, b, rate_bps, delay_ps, loss] : links)
                    fabric.links.push_back({a, b, rate_bps, delay_ps, loss});
            })
        .def_prop_rw(
            "changes",
            [](const FabricDescription& fabric) {
                std::vector<AskedChange> changes;
                for (const LinkChange& change : fabric.changes)
                    changes.emplace_back(change.time, change.link, change.rate_bps);
                return changes;
            },
            [](FabricDescription& fabric, const std::vector<AskedChange>& changes) {
                fabric.changes.clear();
                for (const auto& [time, link, rate_bps] : changes)
                    fabric.changes.push_back({time, link, rate_bps});
            });
}

// The columns of a table by name.
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
        .def(nb::init<const FabricDescription&, Ticks>(), nb::arg("fabric"), nb::arg("step") = 1)
        .def("path", &Routes::path, nb::arg("source"), nb::arg("destination"), nb::arg("ports"))
        .def("measure",
             [](Routes& routes, std::int32_t source, std::int32_t destination, std::uint32_t payload_bytes) {
                 const PathMeasure measured = routes.measure(source, destination, payload_bytes);
                 return std::pair(measured.rtt, measured.product_bytes);
             });

    nb::class_<Simulation>(module, "PacketSimulation")
        .def(nb::init<const FabricDescription&, const packet::Settings&>(), nb::arg("fabric"),
             nb::arg("settings"))
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

void bind_fabric(nb::module_& module) {
    bind_packet_settings(module);
    bind_description(module);
    bind_report(module);
    bind_models(module);
}

}  // namespace chakrascope::engine

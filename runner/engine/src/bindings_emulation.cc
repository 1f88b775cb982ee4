#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "arrays.h"
#include "bindings_common.h"
#include "emulation/clock.h"
#include "emulation/emulation.h"
#include "emulation/fabric.h"
#include "emulation/tcp.h"
#include "emulation/threaded.h"

namespace chakrascope::engine {
namespace {

using emulation::Event;
using emulation::FabricTransport;
using emulation::Frame;
using emulation::TcpTransport;
using emulation::ThreadedTransport;
using emulation::Transport;

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
    item["copy_ns"] = found.copy;
    item["exposed_copy_ns"] = found.exposed_copy;
    item["compute_bound"] = found.compute_bound;
    item["compute_utilization"] = found.compute_utilization;
    item["memory_utilization"] = found.memory_utilization;
    item["operation_intensity"] = found.operation_intensity;
    return item;
}

// Collects the columns of a list of structures, by name.
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
    const auto progress = [&callback](const emulation::Progress& now) {
        const nb::gil_scoped_acquire acquire;
        return nb::cast<bool>(callback(now.now_ns, now.finished, now.waiting, now.sent, now.received));
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
        .def_ro("replayed", &EmulationOutput::replayed)
        .def_ro("evened", &EmulationOutput::evened)
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

Frame read_frame(const nb::bytes& bytes) {
    Frame frame{};
    std::memcpy(&frame, bytes.c_str(), std::min(bytes.size(), sizeof frame));
    return frame;
}

// Wrap the Python function that posts a message. The arguments of this function are the peer, the
// frame, the number of bytes after the frame, and whether the message is urgent.
ThreadedTransport::Post poster(const nb::object& post) {
    return [post](std::int32_t peer, const emulation::Header& header) {
        const nb::gil_scoped_acquire acquire;
        const Frame frame = emulation::to_frame(header);
        post(peer, nb::bytes(&frame, sizeof frame), header.size,
             header.kind == emulation::MessageKind::Answer);
    };
}

// Create an event of the transport at the current time.
Event event(Event::Kind kind, std::int32_t peer, std::int32_t path, const Frame& frame,
            emulation::Time begun) {
    return {kind, peer, path, emulation::to_header(frame), begun, emulation::monotonic_ns()};
}

void bind_threaded_transport(nb::module_& module) {
    nb::class_<ThreadedTransport, Transport>(module, "ThreadedTransport")
        .def(
            "__init__",
            [](ThreadedTransport* place, const nb::object& errors, const nb::object& post) {
                translated(errors, [&] { return new (place) ThreadedTransport(poster(post)); });
            },
            nb::arg("errors"), nb::arg("post"))
        .def(
            "sent",
            [](ThreadedTransport& self, std::int32_t peer, std::int32_t path, const nb::bytes& frame,
               emulation::Time begun_ns) {
                self.happened(event(Event::Kind::Sent, peer, path, read_frame(frame), begun_ns));
            },
            nb::arg("peer"), nb::arg("path"), nb::arg("frame"), nb::arg("begun_ns"))
        .def(
            "came",
            [](ThreadedTransport& self, std::int32_t peer, std::int32_t path, const nb::bytes& frame,
               emulation::Time begun_ns) {
                self.happened(event(Event::Kind::Came, peer, path, read_frame(frame), begun_ns));
            },
            nb::arg("peer"), nb::arg("path"), nb::arg("frame"), nb::arg("begun_ns"))
        .def("lost", &ThreadedTransport::lost, nb::arg("peer"), nb::arg("why"))
        .def_static(
            "size_behind",
            [](std::int32_t peer, const nb::bytes& bytes) -> std::int64_t {
                const Frame frame = read_frame(bytes);
                return emulation::is_frame_of(frame, peer) ? static_cast<std::int64_t>(frame.size) : -1;
            },
            nb::arg("peer"), nb::arg("frame"));
    module.attr("FRAME_BYTES") = sizeof(Frame);
    module.attr("SILENCE") = emulation::kSilence;
}

std::string to_string(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

void bind_fabric_transport(nb::module_& module) {
    using Names = std::vector<nb::bytes>;
    nb::class_<FabricTransport, Transport>(module, "FabricTransport")
        .def_static("is_built", &FabricTransport::is_built)
        .def_static(
            "providers",
            [](const nb::object& errors) {
                return translated(errors, [] { return FabricTransport::providers(); });
            },
            nb::arg("errors"))
        .def_static(
            "open",
            [](const nb::object& errors, const std::string& provider,
               const std::vector<std::string>& addresses, std::int32_t rank, const nb::bytes& key) {
                return translated(errors, [&] {
                    return FabricTransport::open(provider, addresses, {rank, to_string(key)});
                });
            },
            nb::arg("errors"), nb::arg("provider"), nb::arg("addresses"), nb::arg("rank"), nb::arg("key"))
        .def("names",
             [](const FabricTransport& self) {
                 Names names;
                 for (const std::string& name : self.names()) names.emplace_back(name.data(), name.size());
                 return names;
             })
        .def(
            "join",
            [](FabricTransport& self, const nb::object& errors, const std::map<std::int32_t, Names>& peers,
               emulation::Time deadline_ns) {
                std::map<std::int32_t, std::vector<std::string>> ends;
                for (const auto& [peer, names] : peers)
                    for (const nb::bytes& name : names) ends[peer].push_back(to_string(name));
                translated(errors, [&] {
                    const nb::gil_scoped_release release;
                    self.join(ends, deadline_ns);
                });
            },
            nb::arg("errors"), nb::arg("peers"), nb::arg("deadline_ns"));
}

}  // namespace

void bind_emulation(nb::module_& module) {
    bind_output(module);
    bind_transports(module);
    bind_threaded_transport(module);
    bind_fabric_transport(module);
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

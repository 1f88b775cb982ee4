// The Python bindings of the converter's native part: columns are NumPy arrays.
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "device_reader.h"
#include "host_chain.h"
#include "host_reader.h"
#include "order.h"
#include "timeline.h"

namespace nb = nanobind;
using namespace chakrascope::converter;

namespace {

template <class Reader>
void bind_feeding(nb::class_<Reader>& reader) {
    reader
        .def("feed",
             [](Reader& self, const Byte& bytes) {
                 const nb::gil_scoped_release release;
                 self.feed(bytes_of(bytes));
             })
        .def("finish",
             [](Reader& self) {
                 const nb::gil_scoped_release release;
                 self.finish();
             })
        .def("texts", [](const Reader& self) { return to_list(self.texts); });
}

void bind_device_reader(nb::module_& module) {
    auto reader = nb::class_<DeviceReader>(module, "DeviceReader");
    bind_feeding(reader);
    reader.def(nb::init<bool>(), nb::arg("with_arguments") = false)
        .def("arguments", [](const DeviceReader& self) { return to_list(self.arguments); })
        .def("events",
             [](DeviceReader& self) {
                 EventColumns& from = self.events;
                 return Table()
                     .add("name", from.name)
                     .add("thread", from.thread)
                     .add("is_operator", from.is_operator)
                     .add("start_ns", from.start_ns)
                     .add("end_ns", from.end_ns)
                     .add("record_id", from.record_id)
                     .add("sequence", from.sequence)
                     .add("external_id", from.external_id)
                     .add("comm", from.comm)
                     .add("arguments", from.arguments)
                     .take();
             })
        .def("frames",
             [](DeviceReader& self) {
                 FrameColumns& from = self.frames;
                 return Table()
                     .add("name", from.name)
                     .add("thread", from.thread)
                     .add("start_ns", from.start_ns)
                     .add("end_ns", from.end_ns)
                     .take();
             })
        .def("calls",
             [](DeviceReader& self) {
                 CallColumns& from = self.calls;
                 return Table()
                     .add("name", from.name)
                     .add("thread", from.thread)
                     .add("kernel", from.kernel)
                     .add("start_ns", from.start_ns)
                     .add("end_ns", from.end_ns)
                     .add("correlation", from.correlation)
                     .add("external_id", from.external_id)
                     .take();
             })
        .def("works",
             [](DeviceReader& self) {
                 WorkColumns& from = self.works;
                 return Table()
                     .add("name", from.name)
                     .add("category", from.category)
                     .add("start_ns", from.start_ns)
                     .add("end_ns", from.end_ns)
                     .add("device", from.device)
                     .add("stream", from.stream)
                     .add("correlation", from.correlation)
                     .add("external_id", from.external_id)
                     .add("size_bytes", from.size_bytes)
                     .add("comm", from.comm)
                     .take();
             })
        .def("syncs",
             [](DeviceReader& self) {
                 SyncColumns& from = self.syncs;
                 return Table()
                     .add("kind", from.kind)
                     .add("stream", from.stream)
                     .add("on_stream", from.on_stream)
                     .add("correlation", from.correlation)
                     .add("record_correlation", from.record_correlation)
                     .take();
             })
        .def("comms",
             [](DeviceReader& self) {
                 CommColumns& from = self.comms;
                 return Table()
                     .add("collective", from.collective)
                     .add("in_elements", from.in_elements)
                     .add("out_elements", from.out_elements)
                     .add("dtype", from.dtype)
                     .add("group_size", from.group_size)
                     .add("group_name", from.group_name)
                     .add("group_ranks", from.group_ranks)
                     .add("peer", from.peer)
                     .take();
             })
        .def("process", [](const DeviceReader& self) { return self.process; })
        .def("unread",
             [](const DeviceReader& self) {
                 nb::dict counts;
                 for (const auto& [kind, count] : self.unread) counts[to_text(kind)] = count;
                 return counts;
             })
        .def("mistimed",
             [](const DeviceReader& self) {
                 return nb::make_tuple(self.mistimed, to_text(self.first_mistimed));
             })
        .def("about", [](const DeviceReader& self) {
            nb::dict about;
            for (const auto& [key, value] : self.about) about[to_text(key)] = to_text(value);
            return about;
        });
}

void bind_host_reader(nb::module_& module) {
    auto reader = nb::class_<HostReader>(module, "HostReader");
    bind_feeding(reader);
    reader.def(nb::init<>())
        .def("operators",
             [](HostReader& self) {
                 OperatorColumns& from = self.operators;
                 return Table()
                     .add("record_id", from.record_id)
                     .add("kind", from.kind)
                     .add("thread", from.thread)
                     .add("bounds", from.bounds)
                     .add("inputs_end", from.inputs_end)
                     .add("first_end", from.first_end)
                     .add("storages", from.storages)
                     .add("offsets", from.offsets)
                     .take();
             })
        .def("kinds",
             [](HostReader& self) {
                 KindColumns& from = self.kinds;
                 return Table()
                     .add("name", from.name)
                     .add("schema", from.schema)
                     .add("arguments", from.arguments)
                     .take();
             })
        .def("group_lists",
             [](const HostReader& self) {
                 nb::list lists;
                 for (const std::string& list : self.group_lists)
                     lists.append(nb::bytes(list.data(), list.size()));
                 return lists;
             })
        .def("process", [](const HostReader& self) { return self.process; })
        .def("schema", [](const HostReader& self) { return to_text(self.schema); });
}

void bind_timeline(nb::module_& module) {
    nb::class_<Nesting>(module, "Nesting")
        .def(nb::init<>())
        .def("operators", [](Nesting& self, const Long& start_ns, const Long& end_ns, const Long& sequence,
                             const Byte& role, const Int& modules, std::int64_t from_ns,
                             std::int64_t until_ns, std::uint8_t phase) {
            const EventView events{view(start_ns), view(end_ns), view(sequence), view(role), view(modules)};
            OpColumns ops = self.operators(events, from_ns, until_ns, static_cast<Phase>(phase));
            return Table()
                .add("event", ops.event)
                .add("parent", ops.parent)
                .add("module", ops.module)
                .add("start_ns", ops.start_ns)
                .add("end_ns", ops.end_ns)
                .add("phase", ops.phase)
                .add("is_leaf", ops.is_leaf)
                .take();
        });
    module.def("cut",
               [](const Long& start_ns, const Long& end_ns, std::int64_t from_ns, std::int64_t until_ns) {
                   PieceColumns pieces = cut(view(start_ns), view(end_ns), from_ns, until_ns);
                   return Table()
                       .add("start_ns", pieces.start_ns)
                       .add("end_ns", pieces.end_ns)
                       .add("op", pieces.op)
                       .add("next_op", pieces.next_op)
                       .take();
               });
    module.def("host_chain", [](const Long& piece_start_ns, const Long& piece_end_ns, const Int& piece_op,
                                const Long& mark_time_ns, const Long& mark_resume_ns,
                                const Long& mark_return_ns, const Byte& mark_waits,
                                const Long& burst_start_ns, const Long& burst_end_ns, std::int32_t num_ops) {
        const ChainInput input{view(piece_start_ns), view(piece_end_ns),   view(piece_op),
                               view(mark_time_ns),   view(mark_resume_ns), view(mark_return_ns),
                               view(mark_waits),     view(burst_start_ns), view(burst_end_ns)};
        ChainColumns nodes = host_chain(input, num_ops);
        nb::dict columns = Table()
                               .add("start_ns", nodes.start_ns)
                               .add("duration_ns", nodes.duration_ns)
                               .add("piece", nodes.piece)
                               .add("stop", nodes.stop)
                               .add("issuer", nodes.issuer)
                               .add("resumed", nodes.resumed)
                               .add("burst_first", nodes.burst_first)
                               .add("burst_last", nodes.burst_last)
                               .take();
        return std::make_tuple(columns, nodes.wait_ns);
    });
}

void bind_order(nb::module_& module) {
    module.def("order_by_dependency", [](const Long& priority, const Long& bounds, const Long& sources) {
        return to_array(order_by_dependency(view(priority), {view(bounds), view(sources)}));
    });
    module.def("replay", [](const Long& turns, const Long& lane, const Long& duration_ns, const Long& bounds,
                            const Long& sources) {
        Times times = replay(view(turns), view(lane), view(duration_ns), {view(bounds), view(sources)});
        return std::make_tuple(to_array(std::move(times.start_ns)), to_array(std::move(times.end_ns)));
    });
    module.def(
        "last_writers", [](const Long& reads, const Long& writes, const Byte& views, const Long& storages) {
            Pairs pairs = last_writers({view(reads), view(writes), view(views), view(storages)});
            return std::make_tuple(to_array(std::move(pairs.source)), to_array(std::move(pairs.target)));
        });
}

}  // namespace

NB_MODULE(_native, module) {
    // An exception that ends the program keeps references to these objects in its frames.
    nb::set_leak_warnings(false);
    nb::exception<FormatError>(module, "FormatError", PyExc_ValueError);
    bind_device_reader(module);
    bind_host_reader(module);
    bind_timeline(module);
    bind_order(module);
    bind_chakra(module);
}

// The Python bindings of the converter's native part. Columns are NumPy arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "chakra/columns.h"
#include "chakra/message.h"
#include "chakra/writer.h"
#include "device_reader.h"
#include "host_reader.h"
#include "order.h"
#include "texts.h"
#include "timeline.h"

namespace nb = nanobind;
using namespace chakrascope::converter;
namespace chakra = chakrascope::chakra;

namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Long = Array<std::int64_t>;
using Int = Array<std::int32_t>;
using Byte = Array<std::uint8_t>;

template <class T>
std::span<const T> view(const Array<T>& array) {
    return {array.data(), array.size()};
}

std::string_view bytes_of(const Byte& array) {
    return {reinterpret_cast<const char*>(array.data()), array.size()};
}

template <class T>
nb::object to_array(std::vector<T>&& values) {
    auto* owned = new std::vector<T>(std::move(values));
    const nb::capsule owner(owned,
                            [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

nb::object to_text(std::string_view bytes) {
    return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

nb::list to_list(const Texts& texts) {
    nb::list list;
    for (const std::string& text : texts.strings()) list.append(to_text(text));
    return list;
}

nb::bytes to_bytes(const std::string& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

// Collects the columns of a table, by name.
class Table {
  public:
    template <class T>
    Table& add(const char* name, std::vector<T>& values) {
        columns_[name] = to_array(std::move(values));
        return *this;
    }
    nb::dict take() { return std::move(columns_); }

  private:
    nb::dict columns_;
};

TextTable text_table(const std::tuple<Byte, Long>& table) {
    return {bytes_of(std::get<0>(table)), view(std::get<1>(table))};
}

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
        .def("processes", [](const DeviceReader& self) { return to_list(self.processes); })
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

using chakra::Key;
using chakra::kIntegerColumns;
using chakra::kKnown;
using chakra::kTextColumns;

const char* column_name(std::size_t number) { return kKnown[number].column.data(); }

nb::tuple to_texts(chakra::TextColumn& column) {
    return nb::make_tuple(to_array(std::move(column.numbers)), to_list(column.texts));
}

// Return the non-empty columns of a file, by name.
nb::tuple read_columns(const Byte& file) {
    chakra::NodeColumns read;
    {
        const nb::gil_scoped_release release;
        read = chakra::read_columns(bytes_of(file));
    }
    Table numbers;
    const auto add = [&numbers](Key key, auto& values) {
        if (!values.empty()) numbers.add(chakra::known(key).column.data(), values);
    };
    numbers.add("node_id", read.id).add("type", read.type);
    add(Key::IsCpuOp, read.is_cpu_op);
    add(Key::Group, read.group);
    for (std::size_t i = 0; i < kIntegerColumns; ++i) add(static_cast<Key>(i), read.integers[i]);
    nb::dict texts;
    texts["name"] = to_texts(read.name);
    for (std::size_t i = 0; i < kTextColumns; ++i)
        if (!read.texts[i].numbers.empty()) texts[column_name(kIntegerColumns + i)] = to_texts(read.texts[i]);
    return nb::make_tuple(
        numbers.take(), texts, to_array(std::move(read.edges)),
        nb::make_tuple(to_array(std::move(read.extra.ids)), to_array(std::move(read.extra.ends)),
                       to_array(std::move(read.extra.bytes))));
}

nb::object to_object(const chakra::Value& value) {
    switch (value.kind) {
        case chakra::ValueKind::Double:
            return nb::float_(std::bit_cast<double>(value.bits));
        case chakra::ValueKind::Float:
            return nb::float_(std::bit_cast<float>(static_cast<std::uint32_t>(value.bits)));
        case chakra::ValueKind::Uint64:
        case chakra::ValueKind::Fixed64:
            return nb::int_(value.bits);
        case chakra::ValueKind::Bool:
            return nb::bool_(value.bits != 0);
        case chakra::ValueKind::String:
            return to_text(value.text);
        case chakra::ValueKind::Bytes:
            return nb::bytes(value.text.data(), value.text.size());
        default:
            return nb::int_(static_cast<std::int64_t>(value.bits));
    }
}

// Collects the attributes of a node, and the values of the node's inputs and outputs.
struct Facts {
    nb::dict found;

    void id(std::uint64_t, const chakra::Reader&) {}
    void name(std::string_view, const chakra::Reader&) {}
    void type(std::int32_t, const chakra::Reader&) {}
    void ctrl_dep(std::uint64_t) {}
    void data_dep(std::uint64_t) {}
    void duration_micros(std::uint64_t) {}

    void attribute(const chakra::Attribute& attribute, std::string_view, const chakra::Reader& reader) {
        nb::object value = nb::none();
        if (attribute.is_scalar()) value = to_object(attribute.value);
        if (attribute.field != 0 && !attribute.is_scalar()) {
            nb::list values;
            chakra::read_list(reader.within(attribute.value.text), attribute.value.kind,
                              [&values](const chakra::Value& one) { values.append(to_object(one)); });
            value = values;
        }
        found[to_text(attribute.name)] = value;
    }

    void other(std::uint32_t key, std::string_view whole, const chakra::Reader& reader) {
        const std::uint32_t field = chakra::field_of(key);
        const bool is_info = (field == chakra::NodeField::kInputs || field == chakra::NodeField::kOutputs) &&
                             chakra::wire_of(key) == chakra::Wire::Bytes;
        if (!is_info) return;
        chakra::Reader outer = reader.within(whole);
        outer.key();
        chakra::Reader info = outer.within(outer.bytes());
        std::string_view values;
        while (!info.done()) {
            const std::uint32_t next = info.key();
            if (next == chakra::key(chakra::InfoField::kValues, chakra::Wire::Bytes)) {
                values = info.bytes();
            } else {
                info.skip(next);
            }
        }
        found[field == chakra::NodeField::kInputs ? "inputs" : "outputs"] = to_text(values);
    }
};

using PyTexts = std::tuple<Int, std::tuple<Byte, Long>>;
using PyDependencies = std::tuple<Long, Long>;
using PyExtra = std::tuple<Byte, Long, Long>;

// A writer, and the arrays that the writer reads.
class ArrayWriter {
  public:
    ArrayWriter(const std::optional<nb::bytes>& metadata, const nb::dict& numbers, const nb::dict& texts,
                PyDependencies ctrl, PyDependencies data, PyExtra extra)
        : metadata_(metadata ? std::string(metadata->c_str(), metadata->size()) : chakra::own_metadata()),
          ctrl_(std::move(ctrl)),
          data_(std::move(data)),
          extra_(std::move(extra)),
          writer_(nodes(numbers, texts), metadata_) {}

    std::string next() { return writer_.next(); }

  private:
    std::span<const std::int64_t> keep(const nb::dict& numbers, const char* name) {
        return view(numbers_.emplace_back(nb::cast<Long>(numbers[name])));
    }
    chakra::TextNumbers keep_texts(const nb::dict& texts, const char* name) {
        const auto& [rows, table] = texts_.emplace_back(nb::cast<PyTexts>(texts[name]));
        return {view(rows), text_table(table)};
    }

    chakra::NodeView nodes(const nb::dict& numbers, const nb::dict& texts) {
        chakra::NodeView nodes;
        nodes.id = keep(numbers, "node_id");
        nodes.type = keep(numbers, "type");
        nodes.group = keep(numbers, chakra::known(Key::Group).column.data());
        nodes.is_cpu_op = keep(numbers, chakra::known(Key::IsCpuOp).column.data());
        for (std::size_t i = 0; i < kIntegerColumns; ++i) nodes.integers[i] = keep(numbers, column_name(i));
        nodes.name = keep_texts(texts, "name");
        for (std::size_t i = 0; i < kTextColumns; ++i)
            nodes.texts[i] = keep_texts(texts, column_name(kIntegerColumns + i));
        nodes.ctrl = {view(std::get<0>(ctrl_)), view(std::get<1>(ctrl_))};
        nodes.data = {view(std::get<0>(data_)), view(std::get<1>(data_))};
        nodes.extra = {bytes_of(std::get<0>(extra_)), view(std::get<1>(extra_)), view(std::get<2>(extra_))};
        return nodes;
    }

    std::string metadata_;
    std::vector<Long> numbers_;
    std::vector<PyTexts> texts_;
    PyDependencies ctrl_, data_;
    PyExtra extra_;
    chakra::Writer writer_;
};

void bind_chakra(nb::module_& module) {
    nb::exception<chakra::Refusal>(module, "ChakraRefusal", PyExc_ValueError);
    module.def("read_chakra", &read_columns);
    module.def("read_attributes", [](const nb::bytes& node) {
        Facts facts;
        chakra::read_node<chakra::Care::WhatMatters>(chakra::Reader({node.c_str(), node.size()}), facts);
        return facts.found;
    });
    nb::class_<ArrayWriter>(module, "ChakraWriter")
        .def(nb::init<const std::optional<nb::bytes>&, const nb::dict&, const nb::dict&, PyDependencies,
                      PyDependencies, PyExtra>(),
             nb::arg("metadata").none(), nb::arg("numbers"), nb::arg("texts"), nb::arg("ctrl"),
             nb::arg("data"), nb::arg("extra"))
        .def("next", [](ArrayWriter& self) {
            std::string piece;
            {
                const nb::gil_scoped_release release;
                piece = self.next();
            }
            return to_bytes(piece);
        });
}

}  // namespace

NB_MODULE(_native, module) {
    // The frames of an exception that ends the program hold references to these objects, which would be
    // reported as leaks.
    nb::set_leak_warnings(false);
    nb::exception<FormatError>(module, "FormatError", PyExc_ValueError);
    bind_device_reader(module);
    bind_host_reader(module);
    bind_timeline(module);
    bind_order(module);
    bind_chakra(module);
}

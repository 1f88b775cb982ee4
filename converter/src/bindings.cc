// The Python face of the converter's native part: columns are NumPy arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device_reader.h"
#include "encode.h"
#include "host_chain.h"
#include "host_reader.h"
#include "order.h"
#include "parquet.h"
#include "timeline.h"

namespace nb = nanobind;
using namespace chakrascope::converter;

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
    auto* kept = new std::vector<T>(std::move(values));
    const nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

nb::object to_text(std::string_view bytes) {
    return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

nb::list to_list(const Texts& texts) {
    nb::list list;
    for (const std::string& text : texts.kept()) list.append(to_text(text));
    return list;
}

// The columns of a table by name.
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
        .def("calls",
             [](DeviceReader& self) {
                 CallColumns& from = self.calls;
                 return Table()
                     .add("name", from.name)
                     .add("thread", from.thread)
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
                                const Long& mark_time_ns, const Long& mark_resume_ns, const Byte& mark_waits,
                                const Long& burst_start_ns, const Long& burst_end_ns, std::int32_t num_ops) {
        const ChainInput input{view(piece_start_ns), view(piece_end_ns),   view(piece_op),
                               view(mark_time_ns),   view(mark_resume_ns), view(mark_waits),
                               view(burst_start_ns), view(burst_end_ns)};
        ChainColumns nodes = host_chain(input, num_ops);
        nb::dict columns = Table()
                               .add("start_ns", nodes.start_ns)
                               .add("duration_ns", nodes.duration_ns)
                               .add("piece", nodes.piece)
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

TextTable text_table(const std::tuple<Byte, Long>& table) {
    return {bytes_of(std::get<0>(table)), view(std::get<1>(table))};
}

using PyTexts = std::tuple<std::string, Int, std::tuple<Byte, Long>>;
using PyIntegers = std::tuple<std::string, std::uint32_t, Long, bool>;
using PySources = std::tuple<Long, Long>;

TextColumn text_column(const PyTexts& column) {
    return {std::get<0>(column), view(std::get<1>(column)), text_table(std::get<2>(column))};
}

nb::bytes to_bytes(const std::string& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

ColumnKind kind_of(const std::string& dtype) {
    if (dtype == "bool") return ColumnKind::kBool;
    if (dtype == "uint8") return ColumnKind::kUint8;
    if (dtype == "int16") return ColumnKind::kInt16;
    if (dtype == "int64") return ColumnKind::kInt64;
    if (dtype == "str") return ColumnKind::kText;
    throw std::invalid_argument("no column is written as " + dtype);
}

void bind_parquet(nb::module_& module) {
    nb::class_<ParquetWriter>(module, "ParquetWriter")
        .def("__init__",
             [](ParquetWriter* self, const std::vector<std::tuple<std::string, std::string>>& columns) {
                 std::vector<ColumnSchema> schema;
                 for (const auto& [name, dtype] : columns) schema.push_back({name, kind_of(dtype)});
                 new (self) ParquetWriter(std::move(schema));
             })
        .def("integers",
             [](ParquetWriter& self, const Long& values) { return to_bytes(self.integers(view(values))); })
        .def("texts",
             [](ParquetWriter& self, const Int& numbers, const std::tuple<Byte, Long>& texts) {
                 return to_bytes(self.texts(view(numbers), text_table(texts)));
             })
        .def("finish", [](const ParquetWriter& self) { return to_bytes(self.finish()); });
}

// An encoder, and the arrays it reads.
class ArrayEncoder {
  public:
    ArrayEncoder(const nb::bytes& preamble, Long id, Long type, Long duration_ns, Long lane, PyTexts name,
                 PySources ctrl, PySources data, Byte is_cpu_op, std::vector<PyIntegers> integers,
                 std::vector<PyTexts> texts, std::tuple<Byte, Long> extra)
        : preamble_(preamble.c_str(), preamble.size()),
          nodes_{std::move(id), std::move(type), std::move(duration_ns), std::move(lane)},
          name_(std::move(name)),
          sources_{std::move(ctrl), std::move(data)},
          is_cpu_op_(std::move(is_cpu_op)),
          integers_(std::move(integers)),
          texts_(std::move(texts)),
          extra_(std::move(extra)),
          encoder_(input()) {}

    std::string next() { return encoder_.next(); }

  private:
    EncodeInput input() const {
        EncodeInput input;
        input.preamble = preamble_;
        input.id = view(nodes_[0]);
        input.type = view(nodes_[1]);
        input.duration_ns = view(nodes_[2]);
        input.lane = view(nodes_[3]);
        input.name = text_column(name_);
        input.ctrl_bounds = view(std::get<0>(sources_[0]));
        input.ctrl_sources = view(std::get<1>(sources_[0]));
        input.data_bounds = view(std::get<0>(sources_[1]));
        input.data_sources = view(std::get<1>(sources_[1]));
        input.is_cpu_op = view(is_cpu_op_);
        for (const auto& [name_of, field, values, skip] : integers_)
            input.integers.push_back({name_of, field, view(values), skip});
        for (const auto& column : texts_) input.texts.push_back(text_column(column));
        input.extra = text_table(extra_);
        return input;
    }

    std::string preamble_;
    std::array<Long, 4> nodes_;
    PyTexts name_;
    std::array<PySources, 2> sources_;
    Byte is_cpu_op_;
    std::vector<PyIntegers> integers_;
    std::vector<PyTexts> texts_;
    std::tuple<Byte, Long> extra_;
    Encoder encoder_;
};

void bind_encoder(nb::module_& module) {
    nb::class_<ArrayEncoder>(module, "Encoder")
        .def(nb::init<const nb::bytes&, Long, Long, Long, Long, PyTexts, PySources, PySources, Byte,
                      std::vector<PyIntegers>, std::vector<PyTexts>, std::tuple<Byte, Long>>())
        .def("next", [](ArrayEncoder& self) {
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
    nb::exception<FormatError>(module, "FormatError", PyExc_ValueError);
    bind_device_reader(module);
    bind_host_reader(module);
    bind_timeline(module);
    bind_order(module);
    bind_parquet(module);
    bind_encoder(module);
}

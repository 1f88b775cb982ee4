// The Python bindings of the codec for Chakra files.
#include <nanobind/stl/optional.h>

#include <bit>
#include <optional>

#include "arrays.h"
#include "chakra/columns.h"
#include "chakra/message.h"
#include "chakra/writer.h"

namespace chakrascope::converter {
namespace {

using chakra::Key;
using chakra::kIntegerColumns;
using chakra::kKnown;
using chakra::kTextColumns;

const char* column_name(std::size_t number) { return kKnown[number].column.data(); }

nb::tuple to_texts(chakra::TextColumn& column) {
    return nb::make_tuple(to_array(std::move(column.numbers)), to_list(column.texts));
}

// The columns by name, without those that are empty.
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

// Collects the attributes of a node, and the values of its inputs and outputs.
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

// A writer, and the arrays it reads.
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

}  // namespace

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

}  // namespace chakrascope::converter

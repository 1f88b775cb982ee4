// The Python face of the reader and the writer: bytes in, NumPy arrays out, and the other way round.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "damaged.h"
#include "metadata.h"
#include "reader.h"
#include "writer.h"

namespace nb = nanobind;
using namespace chakrascope::parquet;

namespace {

constexpr std::array<const char*, 13> kNames = {"bool",    "int8",   "int16",  "int32",  "int64",
                                                "uint8",   "uint16", "uint32", "uint64", "float32",
                                                "float64", "text",   "other"};

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Given = std::tuple<Array<std::int64_t>, std::optional<Array<std::uint8_t>>, std::vector<nb::bytes>>;

template <class T>
nb::object to_array(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    const nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::bytes to_bytes(const std::string& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

Kind kind_of(const std::string& name) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        if (name == kNames[i] && static_cast<Kind>(i) != Kind::Other) return static_cast<Kind>(i);
    }
    throw nb::value_error(("there are no columns of the type " + name).c_str());
}

// What the end of a file says, and its columns from the bytes of their pages.
class Reader {
  public:
    Reader(const nb::bytes& metadata, std::uint64_t room) : metadata_(read_metadata(view(metadata), room)) {}

    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const Column& column : metadata_.columns) names.push_back(column.name);
        return names;
    }
    std::vector<std::string> kinds() const {
        std::vector<std::string> kinds;
        for (const Column& column : metadata_.columns)
            kinds.emplace_back(kNames.at(static_cast<std::size_t>(column.kind)));
        return kinds;
    }
    std::vector<std::int64_t> rows() const {
        std::vector<std::int64_t> rows;
        for (const RowGroup& group : metadata_.groups) rows.push_back(group.num_rows);
        return rows;
    }
    std::pair<std::uint64_t, std::uint64_t> place(std::size_t group, std::size_t column) const {
        const Chunk& chunk = metadata_.groups.at(group).chunks.at(column);
        return {chunk.offset, chunk.size};
    }
    std::optional<std::pair<std::int64_t, std::int64_t>> bounds(std::size_t group, std::size_t column) const {
        const std::optional<Bounds>& known = metadata_.groups.at(group).chunks.at(column).bounds;
        if (!known) return std::nullopt;
        return std::pair{known->least, known->most};
    }
    nb::tuple decode(std::size_t group, std::size_t column, const nb::bytes& bytes) const {
        Decoded found;
        {
            const std::string_view pages = view(bytes);
            const nb::gil_scoped_release release;
            found = chakrascope::parquet::decode(metadata_.columns.at(column),
                                                 metadata_.groups.at(group).chunks.at(column), pages);
        }
        nb::list texts;
        for (const std::string& text : found.texts) texts.append(to_bytes(text));
        nb::object present = found.present.empty() ? nb::none() : to_array(std::move(found.present));
        return nb::make_tuple(to_array(std::move(found.values)), present, texts);
    }

  private:
    Metadata metadata_;
};

std::vector<Column> columns_of(const std::vector<std::tuple<std::string, std::string, bool>>& columns) {
    std::vector<Column> made;
    for (const auto& [name, kind, optional] : columns) made.push_back({name, kind_of(kind), optional, {}});
    return made;
}

nb::bytes row_group(Writer& writer, const std::vector<Given>& columns) {
    std::vector<Values> all;
    for (const auto& [values, present, texts] : columns) {
        Values& one = all.emplace_back();
        one.values = {values.data(), values.size()};
        if (present) one.present = {present->data(), present->size()};
        for (const nb::bytes& text : texts) one.texts.emplace_back(view(text));
    }
    std::string bytes;
    {
        const nb::gil_scoped_release release;
        bytes = writer.row_group(all);
    }
    return to_bytes(bytes);
}

}  // namespace

NB_MODULE(_parquet, module) {
    nb::exception<Damaged>(module, "Damaged", PyExc_ValueError);
    nb::class_<Reader>(module, "Reader")
        .def(nb::init<const nb::bytes&, std::uint64_t>())
        .def("names", &Reader::names)
        .def("kinds", &Reader::kinds)
        .def("rows", &Reader::rows)
        .def("place", &Reader::place)
        .def("bounds", &Reader::bounds)
        .def("decode", &Reader::decode);
    nb::class_<Writer>(module, "Writer")
        .def("__init__",
             [](Writer* self, const std::vector<std::tuple<std::string, std::string, bool>>& columns,
                std::string created_by) { new (self) Writer(columns_of(columns), std::move(created_by)); })
        .def("begin", [](Writer& self) { return to_bytes(self.begin()); })
        .def("row_group", &row_group)
        .def("end", [](Writer& self) { return to_bytes(self.end()); });
}

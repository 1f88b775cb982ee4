// What the Python bindings of the native parts share: columns are NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "texts.h"

namespace chakrascope::converter {

namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Long = Array<std::int64_t>;
using Int = Array<std::int32_t>;
using Byte = Array<std::uint8_t>;

template <class T>
std::span<const T> view(const Array<T>& array) {
    return {array.data(), array.size()};
}

inline std::string_view bytes_of(const Byte& array) {
    return {reinterpret_cast<const char*>(array.data()), array.size()};
}

template <class T>
nb::object to_array(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    const nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

inline nb::object to_text(std::string_view bytes) {
    return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

inline nb::list to_list(const Texts& texts) {
    nb::list list;
    for (const std::string& text : texts.kept()) list.append(to_text(text));
    return list;
}

inline nb::bytes to_bytes(const std::string& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

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

inline TextTable text_table(const std::tuple<Byte, Long>& table) {
    return {bytes_of(std::get<0>(table)), view(std::get<1>(table))};
}

void bind_chakra(nb::module_& module);

}  // namespace chakrascope::converter

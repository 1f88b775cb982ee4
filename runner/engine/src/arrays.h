// Converts result columns to NumPy arrays that outlive the objects of the engine.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace chakrascope::engine {

namespace nb = nanobind;

template <class T>
nb::object to_array(std::vector<T>&& values) {
    auto* owned = new std::vector<T>(std::move(values));
    const nb::capsule owner(owned,
                            [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

template <class Item, class Field>
nb::object column(const std::vector<Item>& items, Field field) {
    using Value = std::decay_t<decltype(field(items.front()))>;
    std::vector<Value> values;
    values.reserve(items.size());
    for (const Item& item : items) values.push_back(field(item));
    return to_array(std::move(values));
}

}  // namespace chakrascope::engine

#include "program.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace chakrascope::engine {

void Waits::push_back(std::size_t count) {
    if (count >= kMany) many_[size()] = static_cast<std::uint32_t>(count);
    few_.push_back(count < kMany ? static_cast<std::uint8_t>(count) : kMany);
}

std::string_view Program::name(std::uint32_t node) const {
    const std::uint32_t name = kinds_[kind_of_[node]].name;
    const std::size_t start = name == 0 ? 0 : name_ends_[name - 1];
    return std::string_view(names_).substr(start, name_ends_[name] - start);
}

bool Program::has_ns(std::uint32_t node) const { return (facts(node).has & kHasDurationNs) != 0; }

std::uint64_t Program::duration_ns(std::uint32_t node) const {
    if (micros_apart_[node] == kLongDuration) return long_.at(node).ns;
    return has_ns(node) ? duration_[node] : 0;
}

std::uint64_t Program::duration_micros(std::uint32_t node) const {
    if (micros_apart_[node] == kLongDuration) return long_.at(node).micros;
    if (!has_ns(node)) return duration_[node];
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(duration_[node] / 1000) +
                                      micros_apart_[node]);
}

Node Program::node(std::uint32_t node) const {
    Node whole;
    static_cast<Facts&>(whole) = facts(node);
    whole.id = id(node);
    whole.name = name(node);
    whole.duration_micros = duration_micros(node);
    whole.duration_ns = duration_ns(node);
    return whole;
}

bool Program::depends(std::uint32_t child, std::uint32_t parent) const {
    const auto others = children(parent);
    return std::binary_search(others.begin(), others.end(), child);
}

std::vector<std::uint32_t> Program::in_order() const {
    Waits left = parents_;
    std::vector<std::uint32_t> order;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t i = 0; i < left.size(); ++i) {
        if (left[i] == 0) ready.push(i);
    }
    order.reserve(left.size());
    while (!ready.empty()) {
        const std::uint32_t node = ready.top();
        ready.pop();
        order.push_back(node);
        for (const std::uint32_t child : children(node)) {
            if (left.less(child)) ready.push(child);
        }
    }
    return order;
}

}  // namespace chakrascope::engine

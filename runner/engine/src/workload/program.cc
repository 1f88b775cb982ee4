#include "program.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace chakrascope::engine {

std::string_view Program::name(std::uint32_t node) const {
    const std::uint32_t name = kind(node).name;
    const std::size_t start = name == 0 ? 0 : name_ends_[name - 1];
    return std::string_view(names_).substr(start, name_ends_[name] - start);
}

bool Program::has_ns(std::uint32_t node) const { return (facts(node).has & kHasDurationNs) != 0; }

std::uint64_t Program::duration_ns(std::uint32_t node) const {
    if (nodes_[node].micros_apart == kLongDuration) return long_.at(node).ns;
    return has_ns(node) ? nodes_[node].duration : 0;
}

std::uint64_t Program::duration_micros(std::uint32_t node) const {
    if (nodes_[node].micros_apart == kLongDuration) return long_.at(node).micros;
    if (!has_ns(node)) return nodes_[node].duration;
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(nodes_[node].duration / 1000) +
                                      nodes_[node].micros_apart);
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
    std::vector<std::uint32_t> left(size());
    std::vector<std::uint32_t> order;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t i = 0; i < left.size(); ++i) {
        left[i] = waits(i);
        if (left[i] == 0) ready.push(i);
    }
    order.reserve(left.size());
    while (!ready.empty()) {
        const std::uint32_t node = ready.top();
        ready.pop();
        order.push_back(node);
        for (const std::uint32_t child : children(node)) {
            if (--left[child] == 0) ready.push(child);
        }
    }
    return order;
}

}  // namespace chakrascope::engine

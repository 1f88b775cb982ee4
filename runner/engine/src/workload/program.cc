#include "program.h"

#include <functional>
#include <queue>

namespace chakrascope::engine {

std::vector<std::uint32_t> Program::in_order() const {
    std::vector<std::uint32_t> left = parent_count, order;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t i = 0; i < left.size(); ++i) {
        if (left[i] == 0) ready.push(i);
    }
    order.reserve(left.size());
    while (!ready.empty()) {
        const std::uint32_t node = ready.top();
        ready.pop();
        order.push_back(node);
        for (std::uint32_t i = child_offset[node]; i < child_offset[node + 1]; ++i) {
            if (--left[children[i]] == 0) ready.push(children[i]);
        }
    }
    return order;
}

}  // namespace chakrascope::engine

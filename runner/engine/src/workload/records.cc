#include "records.h"

namespace chakrascope::engine {

Records::Records(std::uint32_t nodes)
    : low_(nodes), high_(nodes, kNever), duration_(nodes, kOpen), cause_(nodes, -1) {}

std::int64_t Records::start(std::uint32_t node) const {
    if (high_[node] == kNever) return -1;
    if (high_[node] == kLate) return late_.at(node);
    return static_cast<std::int64_t>(std::uint64_t{high_[node]} << 32 | low_[node]);
}

std::int64_t Records::end(std::uint32_t node) const {
    if (duration_[node] == kOpen) return -1;
    return start(node) + (duration_[node] == kLong ? long_.at(node) : duration_[node]);
}

NodeRecord Records::operator[](std::uint32_t node) const {
    NodeRecord record{start(node), end(node), cause_[node], {}};
    const auto origin = origins_.find(node);
    if (origin != origins_.end()) record.origin = origin->second;
    return record;
}

void Records::begin(std::uint32_t node, Time now, std::int32_t cause) {
    const bool is_late = now >> 32 >= kLate;
    if (is_late) late_[node] = static_cast<std::int64_t>(now);
    low_[node] = static_cast<std::uint32_t>(now);
    high_[node] = is_late ? kLate : static_cast<std::uint16_t>(now >> 32);
    cause_[node] = cause;
}

void Records::finish(std::uint32_t node, Time now, Origin origin) {
    const std::int64_t took = static_cast<std::int64_t>(now) - start(node);
    if (took >= kLong) long_[node] = took;
    duration_[node] = took >= kLong ? kLong : static_cast<std::uint32_t>(took);
    if (origin.rank >= 0) origins_[node] = origin;
}

}  // namespace chakrascope::engine

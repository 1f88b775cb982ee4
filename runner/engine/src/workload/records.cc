#include "records.h"

namespace chakrascope::engine {

Records::Records(const Program& program) {
    own_.reserve(program.size());
    for (std::uint32_t node = 0; node < program.size(); ++node)
        own_.push_back({program.waits(node), kOpen, -1, kNever});
}

std::int64_t Records::start(std::uint32_t node) const {
    if (own_[node].high == kNever) return -1;
    if (own_[node].high == kLate) return late_.at(node);
    return static_cast<std::int64_t>(std::uint64_t{own_[node].high} << 32 | own_[node].low);
}

std::int64_t Records::end(std::uint32_t node) const {
    if (own_[node].duration == kOpen) return -1;
    return start(node) + (own_[node].duration == kLong ? long_.at(node) : own_[node].duration);
}

NodeRecord Records::operator[](std::uint32_t node) const {
    NodeRecord record{start(node), end(node), own_[node].cause, {}};
    const auto origin = origins_.find(node);
    if (origin != origins_.end()) record.origin = origin->second;
    return record;
}

void Records::begin(std::uint32_t node, Time now, std::int32_t cause) {
    const bool is_late = now >> 32 >= kLate;
    if (is_late) late_[node] = static_cast<std::int64_t>(now);
    own_[node].low = static_cast<std::uint32_t>(now);
    own_[node].high = is_late ? kLate : static_cast<std::uint16_t>(now >> 32);
    own_[node].cause = cause;
}

void Records::finish(std::uint32_t node, Time now, Origin origin) {
    const std::int64_t took = static_cast<std::int64_t>(now) - start(node);
    if (took >= kLong) long_[node] = took;
    own_[node].duration = took >= kLong ? kLong : static_cast<std::uint32_t>(took);
    if (origin.rank >= 0) origins_[node] = origin;
}

}  // namespace chakrascope::engine

// Whether messages are many steps, one after the other, that are not all alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chakrascope::engine::flow {

// Ranks in lock-step meet the same delays and stay so; of a few steps, delays do not add up.
class Steps {
  public:
    void add(std::uint64_t bytes, std::int64_t duration_ns) {
        ++messages_;
        sum_ns_ += static_cast<double>(duration_ns);
        if (apart_) return;
        Size& size = size_of(bytes);
        size.least_ns = std::min(size.least_ns, duration_ns);
        size.most_ns = std::max(size.most_ns, duration_ns);
        const auto most = static_cast<double>(size.most_ns);
        apart_ = most - static_cast<double>(size.least_ns) > kInStep * most;
    }
    bool drift(std::int64_t now_ns) const {
        return apart_ && static_cast<double>(now_ns) * static_cast<double>(messages_) > kFewSteps * sum_ns_;
    }

  private:
    // Messages of one size whose times differ by a larger share are not in step.
    static constexpr double kInStep = 0.001;
    // Fewer steps than this, one after the other, do not add up.
    static constexpr double kFewSteps = 6;
    static constexpr std::size_t kSizes = 64;

    struct Size {
        std::uint64_t bytes;
        std::int64_t least_ns;
        std::int64_t most_ns;
    };

    // Of more sizes than can be kept, the last one makes room.
    Size& size_of(std::uint64_t bytes) {
        if (known_ < sizes_.size() && sizes_[known_].bytes == bytes) return sizes_[known_];
        for (known_ = 0; known_ < sizes_.size(); ++known_)
            if (sizes_[known_].bytes == bytes) return sizes_[known_];
        if (sizes_.size() == kSizes) sizes_.pop_back();
        known_ = sizes_.size();
        return sizes_.emplace_back(Size{bytes, INT64_MAX, 0});
    }

    std::vector<Size> sizes_;
    std::size_t known_ = 0;  // the last that was asked for
    std::uint64_t messages_ = 0;
    double sum_ns_ = 0;
    bool apart_ = false;
};

}  // namespace chakrascope::engine::flow

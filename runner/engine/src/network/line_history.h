// The traffic of lines, each with one message at a time, in equal intervals from time 0 on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../event_queue.h"
#include "../fabric/report.h"

namespace chakrascope::engine {

// Intervals are equally long for all lines; their length doubles when there are too many.
class LineHistory {
  public:
    explicit LineHistory(std::size_t lines) : bytes_(lines) {}

    // A message that occupies the line from `start` on; its bytes pass evenly.
    void add(std::size_t line, Time start, Time busy, std::uint64_t bytes) {
        const Time end = start + std::max<Time>(busy, 1);
        while (end > kStretches * width_) widen();
        std::vector<std::uint64_t>& own = bytes_[line];
        if (own.empty()) own.resize(kStretches);
        std::uint64_t counted = 0;
        for (std::size_t place = start / width_; counted < bytes; ++place) {
            const Time until = (place + 1) * width_;
            const double through = static_cast<double>(until - start) / static_cast<double>(end - start);
            const auto passed =
                until >= end ? bytes : static_cast<std::uint64_t>(through * static_cast<double>(bytes));
            own[place] += passed - counted;
            counted = passed;
        }
    }

    // The traffic of the line from `source` to `destination`, if there was any.
    void tell(std::size_t line, std::int32_t source, std::int32_t destination,
              std::vector<LinkInterval>& intervals) const {
        for (std::size_t place = 0; place < bytes_[line].size(); ++place) {
            if (bytes_[line][place] == 0) continue;
            const auto start = static_cast<std::int64_t>(place * width_);
            const auto end = start + static_cast<std::int64_t>(width_);
            intervals.push_back({source, destination, start, end, bytes_[line][place]});
        }
    }

  private:
    static constexpr std::size_t kStretches = 64;

    void widen() {
        for (std::vector<std::uint64_t>& own : bytes_) {
            if (own.empty()) continue;
            for (std::size_t i = 0; i < kStretches / 2; ++i) own[i] = own[2 * i] + own[2 * i + 1];
            std::fill(own.begin() + kStretches / 2, own.end(), 0);
        }
        width_ *= 2;
    }

    Time width_ = 1000;                              // ns
    std::vector<std::vector<std::uint64_t>> bytes_;  // intervals by line; empty until there is traffic
};

}  // namespace chakrascope::engine

// Records the traffic of links in equal intervals from time 0.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../fabric/report.h"

namespace chakrascope::engine::flow {

// Bytes of each link in equal intervals, whose length doubles when there are too many.
class History {
  public:
    explicit History(std::size_t links) : bytes_(links * kStretches) {}

    // Return the end of the current interval, in ps.
    double end() const { return static_cast<double>(current_ + 1) * width_; }
    void add(std::uint32_t link, double bytes) { bytes_[link * kStretches + current_] += bytes; }
    void go_on() {
        if (++current_ == kStretches) widen();
    }

    // Append the intervals with traffic on the link from `source` to `destination`.
    void tell(std::uint32_t link, std::int32_t source, std::int32_t destination,
              std::vector<LinkInterval>& intervals) const {
        const auto width_ns = static_cast<std::int64_t>(width_ / 1000);
        double before = 0;
        double sum = 0;
        for (std::size_t place = 0; place < kStretches; ++place) {
            sum += bytes_[link * kStretches + place];
            // A difference of rounded sums, so that rounding errors do not accumulate.
            const auto bytes = static_cast<std::uint64_t>(std::llround(sum) - std::llround(before));
            before = sum;
            const auto start = static_cast<std::int64_t>(place) * width_ns;
            if (bytes > 0) intervals.push_back({source, destination, start, start + width_ns, bytes});
        }
    }

  private:
    static constexpr std::size_t kStretches = 64;

    void widen() {
        for (std::size_t first = 0; first < bytes_.size(); first += kStretches) {
            for (std::size_t i = 0; i < kStretches / 2; ++i)
                bytes_[first + i] = bytes_[first + 2 * i] + bytes_[first + 2 * i + 1];
            for (std::size_t i = kStretches / 2; i < kStretches; ++i) bytes_[first + i] = 0;
        }
        width_ *= 2;
        current_ = kStretches / 2;
    }

    double width_ = 1e6;
    std::size_t current_ = 0;
    std::vector<double> bytes_;
};

}  // namespace chakrascope::engine::flow

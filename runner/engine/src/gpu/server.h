// Links and memories as servers of lines that come in trains.
#pragma once

#include <algorithm>
#include <cstdint>

#include "machine.h"

namespace chakrascope::gpu {

// Lines under way together: when the first and the last of them have come in.
struct Train {
    Fs head = 0;
    Fs tail = 0;
    std::uint32_t lines = 1;
};

// So many equal ways, which lines take in turn; first come, first served.
class Server {
  public:
    Server() = default;
    Server(double bytes_per_ns, std::int32_t ways)
        : fs_per_byte_(static_cast<double>(kFsPerNs) / bytes_per_ns), ways_(ways) {}

    // How long a line of so many bytes keeps its way.
    Fs line_time(std::uint32_t bytes) const {
        return static_cast<Fs>(fs_per_byte_ * slower_ * static_cast<double>(ways_) * bytes + 0.5);
    }
    // Serve a train; one that goes ahead waits for no more than a line of data.
    void serve(Train& train, std::uint32_t bytes, bool ahead = false) {
        const Fs line = line_time(bytes);
        const Fs work = work_of(train.lines, bytes);
        const Fs begin = std::max(free_, train.head);
        free_ = begin + work;
        busy_ += work;
        bytes_ += std::uint64_t{train.lines} * bytes;
        lines_ += train.lines;
        const Fs start = ahead ? std::min(begin, train.head + line_time(kLineBytes)) : begin;
        queued_ += start - train.head;
        train.tail = std::max(train.tail + line, start + std::max(line, work));
        train.head = start + line;
    }
    // Serve a part of a train; returns for how long its first line waits.
    Fs serve_part(Fs head, double lines, std::uint32_t bytes) {
        const Fs begin = std::max(free_, head);
        free_ = begin + static_cast<Fs>(fs_per_byte_ * lines * bytes + 0.5);
        return begin - head;
    }

    void slow_down(double factor) { slower_ = factor; }
    Fs busy() const { return busy_; }
    Fs queued() const { return queued_; }
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t lines() const { return lines_; }

  private:
    Fs work_of(std::uint32_t lines, std::uint32_t bytes) const {
        return static_cast<Fs>(fs_per_byte_ * slower_ * static_cast<double>(lines) * bytes + 0.5);
    }

    double fs_per_byte_ = 0;  // all ways together
    double slower_ = 1;
    std::int32_t ways_ = 1;
    Fs free_ = 0;
    Fs busy_ = 0, queued_ = 0;
    std::uint64_t bytes_ = 0, lines_ = 0;
};

}  // namespace chakrascope::gpu

// Servers for links and memories, which serve trains of lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "machine.h"

namespace chakrascope::gpu {

// Lines that travel together, numbered from `first`. `head` and `tail` are the arrival times of the first and
// the last line.
struct Train {
    Fs head = 0;
    Fs tail = 0;
    std::uint32_t lines = 1;
    std::uint64_t first = 0;
};

// Total service time and queueing time of a server's lines.
class Served {
  public:
    Fs busy() const { return busy_; }
    Fs queued() const { return queued_; }
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t lines() const { return lines_; }

  protected:
    void count(const Train& train, std::uint32_t bytes, Fs work) {
        busy_ += work;
        bytes_ += std::uint64_t{train.lines} * bytes;
        lines_ += train.lines;
    }

    Fs queued_ = 0;

  private:
    Fs busy_ = 0;
    std::uint64_t bytes_ = 0, lines_ = 0;
};

// Identical channels with a single queue, first come, first served.
class Server : public Served {
  public:
    Server() = default;
    Server(double bytes_per_ns, std::int32_t ways)
        : fs_per_byte_(static_cast<double>(kFsPerNs) / bytes_per_ns), ways_(ways) {}

    // Return the time for which a line of `bytes` bytes occupies a channel.
    Fs line_time(std::uint32_t bytes) const {
        return static_cast<Fs>(fs_per_byte_ * slower_ * static_cast<double>(ways_) * bytes + 0.5);
    }
    // Serve a train. With `ahead`, the train has priority, and waits for at most one line of queued data.
    void serve(Train& train, std::uint32_t bytes, bool ahead = false) {
        const Fs line = line_time(bytes);
        const Fs work = work_of(train.lines, bytes);
        const Fs begin = std::max(free_, train.head);
        free_ = begin + work;
        count(train, bytes, work);
        const Fs start = ahead ? std::min(begin, train.head + line_time(kLineBytes)) : begin;
        queued_ += start - train.head;
        train.tail = std::max(train.tail + line, start + std::max(line, work));
        train.head = start + line;
    }
    void slow_down(double factor) { slower_ = factor; }
    // Return the service time of the work in the server's queue.
    Fs backlog(Fs now) const { return std::max<Fs>(0, free_ - now); }

  private:
    Fs work_of(std::uint32_t lines, std::uint32_t bytes) const {
        return static_cast<Fs>(fs_per_byte_ * slower_ * static_cast<double>(lines) * bytes + 0.5);
    }

    double fs_per_byte_ = 0;  // with all channels together
    double slower_ = 1;
    std::int32_t ways_ = 1;
    Fs free_ = 0;
};

// Identical channels, each with its own queue. Line n uses channel n modulo the number of channels.
class Bank : public Served {
  public:
    Bank() = default;
    Bank(double bytes_per_ns, std::int32_t ways)
        : fs_per_byte_(static_cast<double>(kFsPerNs) / bytes_per_ns),
          free_(static_cast<std::size_t>(ways), 0) {}

    // Serve a train whose lines arrive evenly spaced. With `ahead`, a line has priority, and waits for at
    // most one line of queued data.
    void serve(Train& train, std::uint32_t bytes, bool ahead = false) {
        const auto ways = static_cast<std::uint32_t>(free_.size());
        const std::uint32_t used = std::min(train.lines, ways);
        const Fs line = line_time(bytes), data = line_time(kLineBytes);
        const double gap =
            train.lines > 1 ? static_cast<double>(train.tail - train.head) / (train.lines - 1) : 0;
        Fs head = std::numeric_limits<Fs>::max(), tail = 0;
        const std::uint32_t each = train.lines / ways, more = train.lines % ways;
        auto way = static_cast<std::uint32_t>(train.first % ways);
        for (std::uint32_t place = 0; place < used; ++place, way = way + 1 == ways ? 0 : way + 1) {
            const std::uint32_t lines = each + (place < more ? 1 : 0);
            const Fs comes = train.head + static_cast<Fs>(gap * place);
            const Fs begin = std::max(free_[way], comes);
            // A line that has not arrived does not block its channel. Its service time is counted from the
            // arrival of the train.
            free_[way] = std::max(free_[way], train.head) + line * lines;
            const Fs start = ahead ? std::min(begin, comes + data) : begin;
            const Fs last = comes + static_cast<Fs>(gap * ways * (lines - 1));
            queued_ += (start - comes) * lines;
            head = std::min(head, start + line);
            tail = std::max(tail, std::max(last + line, start + line * lines));
        }
        count(train, bytes, line * train.lines / ways);
        train.head = head;
        train.tail = tail;
    }

    void slow_down(double factor) { slower_ = factor; }

  private:
    // Return the time for which a line of `bytes` bytes occupies a channel.
    Fs line_time(std::uint32_t bytes) const {
        return static_cast<Fs>(fs_per_byte_ * slower_ * static_cast<double>(free_.size()) * bytes + 0.5);
    }

    double fs_per_byte_ = 0;  // with all channels together
    double slower_ = 1;
    std::vector<Fs> free_;  // time at which each channel is free
};

}  // namespace chakrascope::gpu

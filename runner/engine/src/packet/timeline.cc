#include "timeline.h"

#include <algorithm>

namespace chakrascope::packet {
namespace {

constexpr std::size_t kFirstCapacity = 16;
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kBelow = 4;

// Orders a heap so that the earliest element comes first.
constexpr auto kLater = [](const auto& a, const auto& b) { return b < a; };

}  // namespace

void Timeline::Ring::grow() {
    std::vector<Entry> larger(std::max(kFirstCapacity, 2 * capacity_));
    for (std::size_t i = 0; i < count_; ++i) larger[i] = entries_[(first_ + i) & (capacity_ - 1)];
    entries_.swap(larger);
    capacity_ = entries_.size();
    first_ = 0;
}

void Timeline::push(const Entry& entry, std::uint64_t delay) {
    const auto place = static_cast<std::uint32_t>((delay * 0x9e3779b97f4a7c15ull) >> 56);
    Queue& queue = queues_[place];
    if (queue.entries.empty()) {
        queue.delay = delay;
        queue.entries.push(entry);
        heads_.push_back({entry.time, entry.number, place});
        std::push_heap(heads_.begin(), heads_.end(), kLater);
    } else if (queue.delay == delay) {
        queue.entries.push(entry);
    } else {
        push_others(entry);
    }
}

Timeline::Entry Timeline::pop() {
    if (others_.empty()) return pop_queue();
    if (heads_.empty()) return pop_others();
    const Head& head = heads_.front();
    return others_.front() < Entry{head.time, head.number, {}} ? pop_others() : pop_queue();
}

void Timeline::push_others(const Entry& entry) {
    std::size_t place = others_.size();
    others_.push_back(entry);
    while (place > 0) {
        const std::size_t above = (place - 1) / kBelow;
        if (!(entry < others_[above])) break;
        others_[place] = others_[above];
        place = above;
    }
    others_[place] = entry;
}

Timeline::Entry Timeline::pop_others() {
    const Entry next = others_.front();
    const Entry moving = others_.back();
    others_.pop_back();
    const std::size_t count = others_.size();
    std::size_t place = 0;
    for (std::size_t first = 1; first < count; first = kBelow * place + 1) {
        std::size_t least = first;
        const std::size_t end = std::min(first + kBelow, count);
        for (std::size_t child = first + 1; child < end; ++child) {
            if (others_[child] < others_[least]) least = child;
        }
        if (!(others_[least] < moving)) break;
        others_[place] = others_[least];
        place = least;
    }
    if (count > 0) others_[place] = moving;
    // Prefetch the objects of the next events, which are among these entries and may have left the CPU
    // caches.
    const std::size_t soon = std::min<std::size_t>(others_.size(), 3);
    for (std::size_t place = 0; place < soon; ++place) {
        const auto about = reinterpret_cast<std::uintptr_t>(others_[place].event.argument);
        __builtin_prefetch(reinterpret_cast<const void*>(about));
        __builtin_prefetch(reinterpret_cast<const void*>(about + kCacheLine));
    }
    return next;
}

Timeline::Entry Timeline::pop_queue() {
    Ring& entries = queues_[heads_.front().queue].entries;
    const Entry next = entries.front();
    entries.pop();
    if (entries.empty()) {
        std::pop_heap(heads_.begin(), heads_.end(), kLater);
        heads_.pop_back();
    } else {
        // Prefetch the packet of this queue's next event, which may have left the CPU caches.
        __builtin_prefetch(entries.front().event.argument);
        heads_.front().time = entries.front().time;
        heads_.front().number = entries.front().number;
        sink_first();
    }
    return next;
}

// Move the first entry of the heap down after the head of its queue has changed.
void Timeline::sink_first() {
    const Head moving = heads_.front();
    const std::size_t count = heads_.size();
    std::size_t place = 0;
    for (std::size_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && heads_[child + 1] < heads_[child]) ++child;
        if (!(heads_[child] < moving)) break;
        heads_[place] = heads_[child];
        place = child;
    }
    heads_[place] = moving;
}

}  // namespace chakrascope::packet

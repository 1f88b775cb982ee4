// LRU cache of interned ids, looked up by hash. The id that has been idle longest is reused first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace chakrascope::engine::flow {

class IdCache {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    // Return the first id of this hash for which `same` is true, or kNone.
    template <class Same>
    std::uint32_t find(std::uint64_t hash, const Same& same) const {
        if (heads_.empty()) return kNone;
        for (std::uint32_t number = heads_[hash & (heads_.size() - 1)]; number != kNone;
             number = items_[number].next)
            if (items_[number].hash == hash && same(number)) return number;
        return kNone;
    }

    // Return an id for a new value: the id that has been idle longest, or a new id.
    std::uint32_t put(std::uint64_t hash) {
        std::uint32_t number = oldest_idle();
        if (number == kNone) {
            number = static_cast<std::uint32_t>(items_.size());
            items_.emplace_back();
            if (items_.size() > heads_.size()) grow();
        } else {
            unlink(number);
        }
        items_[number].hash = hash;
        link(number);
        return number;
    }

    void hold(std::uint32_t number) {
        if (items_[number].holders++ == 0) ++held_;
    }
    void release(std::uint32_t number) {
        if (--items_[number].holders > 0) return;
        --held_;
        if (items_[number].queued) return;
        items_[number].queued = true;
        idle_.push_back(number);
    }

  private:
    static constexpr std::size_t kFew = 4096;

    struct Item {
        std::uint64_t hash = 0;
        std::uint32_t next = kNone;
        std::uint32_t holders = 0;
        bool queued = false;
    };

    std::uint32_t oldest_idle() {
        while (!idle_.empty() && items_.size() > std::max(2 * held_, kFew)) {
            const std::uint32_t number = idle_.front();
            idle_.pop_front();
            items_[number].queued = false;
            if (items_[number].holders == 0) return number;
        }
        return kNone;
    }
    void link(std::uint32_t number) {
        std::uint32_t& head = heads_[items_[number].hash & (heads_.size() - 1)];
        items_[number].next = head;
        head = number;
    }
    void unlink(std::uint32_t number) {
        std::uint32_t* place = &heads_[items_[number].hash & (heads_.size() - 1)];
        while (*place != number) place = &items_[*place].next;
        *place = items_[number].next;
    }
    void grow() {
        heads_.assign(std::max<std::size_t>(2 * heads_.size(), 64), kNone);
        for (std::uint32_t number = 0; number + 1 < items_.size(); ++number) link(number);
    }

    std::vector<Item> items_;
    std::vector<std::uint32_t> heads_;
    std::deque<std::uint32_t> idle_;  // idle ids, oldest first; some are in use again
    std::size_t held_ = 0;
};

}  // namespace chakrascope::engine::flow

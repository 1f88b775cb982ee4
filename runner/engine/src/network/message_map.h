// A hash map of message keys with open addressing. Simulations with many messages spend much of their
// time on lookups in this map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chakrascope::engine {

struct MessageKey {
    std::int64_t tag;
    std::int32_t source;
    std::int32_t destination;
    std::uint64_t size;
    std::uint32_t range = 0;  // additional bits of a tag that does not fit into 64 bits
    bool operator==(const MessageKey&) const = default;
};

// A map from message keys to values. Insertions and removals invalidate slots.
template <class Value>
class MessageMap {
  public:
    static constexpr std::size_t kNone = ~std::size_t{0};

    // Return the slot of the key, or kNone.
    std::size_t find(const MessageKey& key) const {
        if (slots_.empty()) return kNone;
        for (std::size_t place = home(key);; place = next(place)) {
            if (!slots_[place].used) return kNone;
            if (slots_[place].key == key) return place;
        }
    }
    // Return the slot of the key, and whether the key is new. A new key has a default value.
    std::pair<std::size_t, bool> find_or_add(const MessageKey& key) {
        if (2 * (count_ + 1) > slots_.size()) grow();
        std::size_t place = home(key);
        for (; slots_[place].used; place = next(place))
            if (slots_[place].key == key) return {place, false};
        slots_[place] = {key, Value{}, true};
        ++count_;
        return {place, true};
    }
    Value& operator[](std::size_t place) { return slots_[place].value; }

    // Erase the entry in a slot, and move the following entries of its probe sequence up, so that lookups
    // still find them.
    void erase(std::size_t gap) {
        --count_;
        for (std::size_t place = next(gap); slots_[place].used; place = next(place)) {
            const std::size_t wanted = home(slots_[place].key);
            const std::size_t mask = slots_.size() - 1;
            if (((place - wanted) & mask) < ((place - gap) & mask)) continue;
            slots_[gap] = slots_[place];
            gap = place;
        }
        slots_[gap].used = false;
    }

  private:
    struct Slot {
        MessageKey key{};
        Value value{};
        bool used = false;
    };

    std::size_t next(std::size_t place) const { return (place + 1) & (slots_.size() - 1); }
    std::size_t home(const MessageKey& key) const {
        std::uint64_t hash = static_cast<std::uint64_t>(key.tag) * 0x9E3779B97F4A7C15ULL;
        hash ^= (static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.source)) << 32) |
                static_cast<std::uint32_t>(key.destination);
        hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ULL + key.size + (std::uint64_t{key.range} << 32);
        hash ^= hash >> 32;
        return static_cast<std::size_t>((hash * 0x94D049BB133111EBULL) >> 20) & (slots_.size() - 1);
    }
    void grow() {
        std::vector<Slot> before(slots_.empty() ? 64 : 2 * slots_.size());
        before.swap(slots_);
        for (const Slot& slot : before) {
            if (!slot.used) continue;
            std::size_t place = home(slot.key);
            while (slots_[place].used) place = next(place);
            slots_[place] = slot;
        }
    }

    std::vector<Slot> slots_;  // at most half of the slots are used
    std::size_t count_ = 0;
};

}  // namespace chakrascope::engine

// Counts the members that have begun each phase of each chunk. A phase that all members have begun will
// certainly end. Until then, the chunk waits and occupies no slot of a queue.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "stream.h"

namespace chakrascope::engine {

class Attendance {
  public:
    explicit Attendance(std::int64_t ranks) : ranks_(ranks) {}

    void begin(const Stream& stream) { ++phases_[key_of(stream)].begun; }
    void end(const Stream& stream) {
        // Members that disagree on the kind of a collective may also disagree on the number of members.
        const auto entry = phases_.find(key_of(stream));
        if (entry != phases_.end() && ++entry->second.ended == members(stream)) phases_.erase(entry);
    }
    // Whether every member has begun the current phase of the stream.
    bool complete(const Stream& stream) const {
        const auto entry = phases_.find(key_of(stream));
        return entry != phases_.end() && entry->second.begun >= members(stream);
    }

  private:
    struct Key {
        std::int64_t tag;
        std::uint32_t phase;
        std::int32_t base;  // identifies the ring among the rings of one dimension
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const {
            const std::uint64_t place =
                (static_cast<std::uint64_t>(key.phase) << 32) | static_cast<std::uint32_t>(key.base);
            std::uint64_t hash = static_cast<std::uint64_t>(key.tag) * 0x9E3779B97F4A7C15ULL ^ place;
            hash = (hash ^ (hash >> 32)) * 0xBF58476D1CE4E5B9ULL;
            return static_cast<std::size_t>(hash ^ (hash >> 29));
        }
    };
    struct Phase {
        std::int64_t begun = 0;
        std::int64_t ended = 0;
    };

    static Key key_of(const Stream& stream) {
        return {stream.tag, stream.next_phase, stream.phase().ring.base};
    }
    std::int64_t members(const Stream& stream) const {
        const auto& phase = stream.phase();
        return phase.custom != nullptr && phase.ring.members == nullptr ? ranks_ : phase.ring.count;
    }

    const std::int64_t ranks_;
    std::unordered_map<Key, Phase, KeyHash> phases_;
};

}  // namespace chakrascope::engine

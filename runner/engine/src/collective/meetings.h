// Computes phases of collectives as a whole, once all members have begun the phase, instead of message
// by message.
//
// In a ring, and in halving and doubling, no member can end before all members have begun, so all end times
// can be computed before the first member ends. On a network without queues, the computed times are exact.
// Events of one rank in one tick may run in a different order than in a simulation of all messages. If the
// order may change the result, the simulation restarts and simulates every message (`Cluster::tied`).
#pragma once

#include <cstdint>
#include <vector>

#include "../config.h"
#include "../event_queue.h"
#include "../network/message_map.h"
#include "../network/network.h"
#include "chains.h"
#include "stream.h"

namespace chakrascope::engine {

class Endpoint;

class Meetings {
  public:
    // Whether the phases of collectives can be computed as a whole with this configuration.
    static bool are_exact(const Config& config);

    Meetings(EventQueue& events, const Network& network, bool active)
        : events_(events), network_(network), active_(active) {}

    bool active() const { return active_; }
    // Whether this phase of a collective can be computed as a whole.
    static bool takes(const Phase& phase);
    // Add a member that begins its phase. `ended` runs when the phase has ended for this member.
    // Returns false if the members disagree on the collective, or if times are too large.
    bool join(std::int32_t rank, const Endpoint& endpoint, const Stream& stream, Callback ended);

  private:
    struct Member {
        std::int32_t rank;
        std::int64_t start;
        Origin origin;
        Callback ended;
    };
    struct Meeting {
        Phase phase;                  // phase of the first member to begin
        std::vector<Member> members;  // members by position in the ring
        std::int32_t missing = 0;
    };
    // Two delays of a member: from its last message until the end of the phase is registered, and from
    // the registration to the end. The chains of a ring do not include the endpoint delay, which is the
    // same for all members.
    struct Rest {
        Time registered = 0;
        Time end = 0;
    };

    std::uint32_t meeting(const Stream& stream);
    bool end(const Meeting& meeting, const Endpoint& endpoint);
    static std::size_t place(const Meeting& meeting, std::size_t number);
    void begin(const Meeting& meeting);
    std::int64_t delay(std::int32_t from, std::int32_t to, std::uint64_t size) const;
    Rest go_round(const Meeting& meeting, const Endpoint& endpoint);
    Rest go_through_pairs(const Meeting& meeting, const Endpoint& endpoint);

    EventQueue& events_;
    const Network& network_;
    const bool active_;
    MessageMap<std::uint32_t> open_;  // the open meetings, by tag, phase and ring
    std::vector<Meeting> meetings_;
    std::vector<std::uint32_t> free_;
    // The state of each member in the phase that is ending.
    std::vector<Chain> chains_;
    std::vector<std::uint32_t> peers_;
    std::vector<std::int64_t> delays_;
    double latest_ = 0;  // the latest end time of the phase
};

}  // namespace chakrascope::engine

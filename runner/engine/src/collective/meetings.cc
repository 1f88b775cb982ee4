#include "meetings.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "../simulation/cluster.h"
#include "../system/endpoint.h"
#include "../workload/rank.h"
#include "algorithm.h"
#include "halving_doubling.h"
#include "ring_direct.h"

namespace chakrascope::engine {
namespace {

// Phases with longer times are left to the event simulation, which reports an overflow of time.
constexpr double kLatest = 4e18;

bool agree(const Phase& a, const Phase& b) {
    const bool same_ring = a.ring.base == b.ring.base && a.ring.stride == b.ring.stride &&
                           a.ring.count == b.ring.count && a.ring.members == b.ring.members &&
                           a.ring.local == b.ring.local;
    return same_ring && a.kind == b.kind && a.size == b.size && a.clockwise == b.clockwise &&
           a.implementation.algorithm == b.implementation.algorithm;
}

class Met final : public Algorithm {
  public:
    using Algorithm::Algorithm;

    void start() override {
        Cluster& cluster = rank_.cluster();
        rank_.moments().leave_out();
        if (!cluster.meetings.join(rank_.id(), rank_.endpoint(), stream_, bind<&Met::credited>(this)))
            cluster.tied = true;
    }

  private:
    void received(std::uint64_t) override {}
    void credited(std::uint64_t) override {
        rank_.moments().take_up(rank_.cluster().events.now());
        finish();
    }
};

}  // namespace

std::unique_ptr<Algorithm> make_met(Rank& rank, Stream& stream) {
    return std::make_unique<Met>(rank, stream);
}

// Phases are not computed as a whole if chunks of several ranks share a resource such as memory or a
// socket, because the order of accesses matters.
bool Meetings::are_exact(const Config& config) {
    const bool shares_memory =
        config.memory_type == MemoryType::Pool || config.memory_type == MemoryType::PerNode;
    return config.never_queues() && !config.rendezvous && config.model_shared_bus != 1 &&
           config.message_cost_ns == 0 && !config.messages_on_request && config.overtaking == 0 &&
           config.default_policies() && !shares_memory;
}

bool Meetings::takes(const Phase& phase) {
    if (phase.custom != nullptr || phase.blocks != nullptr || is_rooted(phase.kind)) return false;
    if (phase.implementation.algorithm == Implementation::Algorithm::Ring) return true;
    return phase.implementation.algorithm == Implementation::Algorithm::HalvingDoubling &&
           phase.ring.power_of_two();
}

bool Meetings::join(std::int32_t rank, const Endpoint& endpoint, const Stream& stream, Callback ended) {
    const std::uint32_t place = meeting(stream);
    Meeting& meeting = meetings_[place];
    const Phase& phase = stream.phase();
    if (!agree(meeting.phase, phase)) return false;
    meeting.members[static_cast<std::size_t>(phase.ring.position)] = {
        rank, static_cast<std::int64_t>(events_.now()), events_.origin(), ended};
    if (--meeting.missing > 0) return true;
    open_.erase(open_.find({stream.tag, static_cast<std::int32_t>(stream.next_phase), phase.ring.base, 0}));
    free_.push_back(place);
    return end(meeting, endpoint);
}

// Return the meeting for the current phase of the stream. The first member to begin the phase creates
// the meeting.
std::uint32_t Meetings::meeting(const Stream& stream) {
    const Phase& phase = stream.phase();
    const auto [entry, created] =
        open_.find_or_add({stream.tag, static_cast<std::int32_t>(stream.next_phase), phase.ring.base, 0});
    if (!created) return open_[entry];
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(meetings_.size()));
        meetings_.emplace_back();
    }
    const std::uint32_t place = open_[entry] = free_.back();
    free_.pop_back();
    meetings_[place].phase = phase;
    meetings_[place].missing = phase.ring.count;
    meetings_[place].members.resize(static_cast<std::size_t>(phase.ring.count));
    return place;
}

// Schedule the end of the phase for each member at its computed time.
bool Meetings::end(const Meeting& meeting, const Endpoint& endpoint) {
    const bool ring = meeting.phase.implementation.algorithm == Implementation::Algorithm::Ring;
    const Rest rest = ring ? go_round(meeting, endpoint) : go_through_pairs(meeting, endpoint);
    if (latest_ > kLatest) return false;
    const Origin outer = events_.origin();
    for (std::size_t i = 0; i < chains_.size(); ++i) {
        const Member& member = meeting.members[place(meeting, i)];
        const Time registered = static_cast<Time>(chains_[i].time) + rest.registered;
        events_.set_origin(meeting.members[chains_[i].from].origin);
        events_.enlist(member.rank, registered + rest.end, registered, member.ended);
    }
    events_.set_origin(outer);
    return true;
}

// Return the position of a member in the ring. Members are numbered in the direction in which data
// moves.
std::size_t Meetings::place(const Meeting& meeting, std::size_t number) {
    const Phase& phase = meeting.phase;
    const bool backwards =
        phase.implementation.algorithm == Implementation::Algorithm::Ring && !phase.clockwise;
    return backwards ? meeting.members.size() - 1 - number : number;
}

void Meetings::begin(const Meeting& meeting) {
    chains_.resize(meeting.members.size());
    delays_.resize(meeting.members.size());
    latest_ = 0;
    for (std::size_t i = 0; i < chains_.size(); ++i) {
        const std::size_t place = this->place(meeting, i);
        chains_[i] = {meeting.members[place].start, static_cast<std::uint32_t>(place)};
        latest_ = std::max(latest_, static_cast<double>(chains_[i].time));
    }
}

std::int64_t Meetings::delay(std::int32_t from, std::int32_t to, std::uint64_t size) const {
    const Time delay = *network_.delay({from, to}, size);
    return static_cast<double>(delay) > kLatest ? std::numeric_limits<std::int64_t>::max()
                                                : static_cast<std::int64_t>(delay);
}

Meetings::Rest Meetings::go_round(const Meeting& meeting, const Endpoint& endpoint) {
    begin(meeting);
    const Phase& phase = meeting.phase;
    const std::uint64_t members = meeting.members.size(), size = message_size(phase);
    const std::uint64_t sends = count_sends(phase.kind, false, members);
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < members; ++i) {
        const std::size_t before = i == 0 ? members - 1 : i - 1;
        delays_[i] = delay(meeting.members[place(meeting, before)].rank,
                           meeting.members[place(meeting, i)].rank, size);
        longest = std::max(longest, delays_[i]);
    }
    // In a reduce-scatter or an all-reduce, only the first round around the ring reduces data.
    const bool scatters = phase.kind == Collective::ReduceScatter;
    const bool reduces = scatters || phase.kind == Collective::AllReduce;
    const Time passes = endpoint.delay(phase.ring.local), reduction = reduces ? endpoint.reduction(size) : 0;
    latest_ += static_cast<double>(sends + 1) *
               (static_cast<double>(longest) + static_cast<double>(passes) + static_cast<double>(reduction));
    if (latest_ > kLatest) return {};
    pass_round(chains_, delays_, sends);
    const Time before_last = sends * passes + (members - 1 - (scatters ? 1 : 0)) * reduction;
    return scatters ? Rest{before_last + passes, reduction} : Rest{before_last, passes};
}

Meetings::Rest Meetings::go_through_pairs(const Meeting& meeting, const Endpoint& endpoint) {
    begin(meeting);
    const Phase& phase = meeting.phase;
    const Time passes = endpoint.delay(phase.ring.local);
    HalvingDoublingSteps steps(phase.kind, phase.ring.count, phase.size);
    peers_.resize(chains_.size());
    for (int sends = steps.sends();; --sends) {
        const HalvingDoublingSteps::Step step = steps.next();
        const Time reduction = step.processed ? endpoint.reduction(step.size) : 0;
        if (sends == 0) return step.processed ? Rest{passes, reduction} : Rest{0, passes};
        Ring ring = phase.ring;
        std::int64_t longest = 0;
        for (std::size_t i = 0; i < chains_.size(); ++i) {
            ring.position = static_cast<std::int32_t>(i);
            peers_[i] = static_cast<std::uint32_t>(partner_of(ring, step.offset));
            delays_[i] = delay(meeting.members[peers_[i]].rank, meeting.members[i].rank, step.size);
            longest = std::max(longest, delays_[i]);
        }
        latest_ +=
            static_cast<double>(longest) + static_cast<double>(passes) + static_cast<double>(reduction);
        if (latest_ > kLatest) return {};
        for (Chain& chain : chains_) chain.time += static_cast<std::int64_t>(passes + reduction);
        exchange(chains_, peers_, delays_);
    }
}

}  // namespace chakrascope::engine

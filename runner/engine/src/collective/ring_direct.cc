// Ring and direct exchange: the same algorithm with one peer or with several peers at a time.
#include "ring_direct.h"

#include <algorithm>

#include "../simulation/cluster.h"
#include "../workload/rank.h"
#include "algorithm.h"

namespace chakrascope::engine {
namespace {

class RingOrDirect final : public Algorithm {
  public:
    RingOrDirect(Rank& rank, Stream& stream) : Algorithm(rank, stream) {
        const Phase& phase = stream.phase();
        const auto members = static_cast<std::uint64_t>(ring_.count);
        const std::int32_t window = phase.implementation.window;
        direct_ = phase.implementation.algorithm == Implementation::Algorithm::Direct;
        kind_ = phase.kind;
        step_ = phase.clockwise ? 1 : -1;
        parallel_ = !direct_ ? 1 : window < 0 ? members - 1 : std::min<std::uint64_t>(window, members - 1);
        sends_left_ = count_sends(kind_, direct_, members);
        reduced_length_ = direct_ && !ring_.local ? parallel_ : (members - 1) * parallel_;
        message_ = message_size(phase);
    }

    void start() override {
        for (std::uint64_t i = 0; i < parallel_; ++i) inject();
    }

  private:
    void received(std::uint64_t) override {
        ++received_;
        if (direct_ && received_ == static_cast<std::uint64_t>(ring_.count) - 1) {
            watch_tie(first_half_arrived_, second_half_credited_);
        }
        inject();
    }

    // Detect a tie: a credit in the same tick as the last arrival of the first half. The two events may
    // be processed in either order.
    void watch_tie(Time& mine, Time other) {
        Cluster& cluster = rank_.cluster();
        mine = cluster.events.now();
        if (cluster.fold != nullptr && mine == other) cluster.tied = true;
    }

    // Queue the next peers, and move the data for these peers through the endpoint.
    void inject() {
        if (plain_left_ == 0 && reduced_left_ == 0) {
            plain_left_ = parallel_;
            reduced_left_ = reduced_length_;
            reducing_ = !reducing_;
        }
        ++injected_;
        if (plain_left_ > 0) {
            --plain_left_;
            bundle(false, false, Side::ToMemory, message_);
        } else {
            const bool processed =
                kind_ == Collective::ReduceScatter || (kind_ == Collective::AllReduce && reducing_);
            const bool send_back = reduced_left_ > parallel_;
            --reduced_left_;
            bundle(processed, send_back, Side::ToNpu, message_);
        }
    }

    void credited(std::uint64_t) override {
        ++credits_;
        const auto peers = static_cast<std::uint64_t>(ring_.count) - 1;
        if (direct_ && kind_ == Collective::AllReduce && sends_left_ <= peers) {
            watch_tie(second_half_credited_, first_half_arrived_);
            if (received_ < peers) return;  // the second half starts when the whole first half has arrived
            for (std::uint64_t i = 0; i < parallel_; ++i) try_send();
        } else {
            try_send();
        }
        if (sends_left_ == 0 && credits_ == parallel_) finish();
    }

    void try_send() {
        if (sent_ == injected_ || sends_left_ == 0 || credits_ == 0) return;
        const auto peers = static_cast<std::uint64_t>(ring_.count) - 1;
        const auto distance = direct_ ? static_cast<std::int32_t>(sent_ % peers) + 1 : 1;
        ++sent_;
        --sends_left_;
        --credits_;
        send(ring_.neighbour(step_ * distance), message_);
        receive(ring_.neighbour(-step_ * distance), message_);
    }

    bool direct_;
    Collective kind_;
    std::int32_t step_;
    std::uint64_t parallel_;  // number of messages in flight
    std::uint64_t sends_left_;
    // number of injections with a reduction per cycle, after `parallel_` injections without a reduction
    std::uint64_t reduced_length_;
    std::uint64_t message_;
    std::uint64_t injected_ = 0, sent_ = 0, received_ = 0, credits_ = 0;
    std::uint64_t plain_left_ = 0, reduced_left_ = 0;
    bool reducing_ = false;
    Time first_half_arrived_ = ~Time{0}, second_half_credited_ = ~Time{0} - 1;
};

}  // namespace

std::uint64_t count_sends(Collective kind, bool direct, std::uint64_t members) {
    if (kind == Collective::AllReduce) return 2 * (members - 1);
    if (kind == Collective::AllToAll && !direct) return members * (members - 1) / 2;
    return members - 1;
}

std::uint64_t message_size(const Phase& phase) {
    const auto members = static_cast<std::uint64_t>(phase.ring.count);
    return phase.kind == Collective::AllGather ? phase.size : phase.size / members;
}

std::unique_ptr<Algorithm> make_ring_or_direct(Rank& rank, Stream& stream) {
    return std::make_unique<RingOrDirect>(rank, stream);
}

}  // namespace chakrascope::engine

#include "algorithm.h"

#include "../errors.h"
#include "../simulation/cluster.h"
#include "../workload/rank.h"

namespace chakrascope::engine {
namespace {

void require_power_of_two(const Phase& phase, const char* algorithm) {
    const Ring& ring = phase.ring;
    if (ring.power_of_two()) return;
    throw ConfigError(std::string(algorithm) + " needs a power of two of ranks, but the " +
                      name_of(phase.kind) + " has " + std::to_string(ring.count) +
                      " in one dimension; use ring or direct there.");
}

// Return whether each round of an all-gather pairs every rank with exactly one other rank, as for 6, 12
// or 20 ranks. With such pairs, a rank gathers data from only some of the ranks. ASTRA-sim has this
// behaviour, which is reproduced here.
bool pairs_up(const Phase& phase) {
    const std::int32_t count = phase.ring.count;
    if (phase.kind != Collective::AllGather) return false;
    for (std::int32_t offset = count / 2; offset > 0; offset /= 2) {
        if (count % (2 * offset) != 0) return false;
    }
    return true;
}

}  // namespace

void Algorithm::send(std::int32_t place, std::uint64_t size, bool in_line) {
    const Cluster& cluster = rank_.cluster();
    const std::int32_t peer = ring_.at(place);
    MessageKey key{stream_.tag, rank_.id(), peer, size};
    if (cluster.fold != nullptr) cluster.fold->rename(key, stream_, ring_.position - place);
    Mailbox& mailbox = rank_.cluster().mailbox;
    if (stream_.run->sends_first) return mailbox.send_on_request(key, {rank_.id(), peer}, {}, true);
    mailbox.send(key, {rank_.id(), peer}, {}, in_line);
}

void Algorithm::receive(std::int32_t place, std::uint64_t size, std::uint64_t what) {
    const Cluster& cluster = rank_.cluster();
    MessageKey key{stream_.tag, ring_.at(place), rank_.id(), size};
    if (cluster.fold != nullptr) cluster.fold->rename(key, stream_, place - ring_.position);
    Mailbox& mailbox = rank_.cluster().mailbox;
    const Callback done = bind<&Algorithm::received>(this, what);
    if (stream_.run->sends_first) return mailbox.receive_on_request(key, done);
    mailbox.receive(key, done);
}

void Algorithm::bundle(bool processed, bool send_back, Side side, std::uint64_t size, std::uint64_t what) {
    const bool tree = stream_.phase().implementation.algorithm == Implementation::Algorithm::DoubleBinaryTree;
    rank_.endpoint().pass({size, side, processed, send_back, ring_.local && !tree},
                          bind<&Algorithm::credited>(this, what));
}

void Algorithm::finish() { rank_.scheduler().proceed(stream_); }

void require_works(const Phase& phase, const Config& config, CustomAlgorithms& customs) {
    if (phase.custom != nullptr) {
        customs.require_works(phase, config.num_ranks());
        return;
    }
    if (is_rooted(phase.kind) || phase.blocks != nullptr) return;
    switch (phase.implementation.algorithm) {
        case Implementation::Algorithm::HalvingDoubling:
            if (phase.kind == Collective::AllToAll) {
                throw ConfigError("halvingDoubling cannot run an all_to_all; use ring or direct for it.");
            }
            if (!pairs_up(phase)) require_power_of_two(phase, "halvingDoubling");
            return;
        case Implementation::Algorithm::DoubleBinaryTree:
            require_power_of_two(phase, "doubleBinaryTree");
            return;
        default:
            return;
    }
}

std::unique_ptr<Algorithm> make_algorithm(Rank& rank, Stream& stream) {
    const Phase& phase = stream.phase();
    Cluster& cluster = rank.cluster();
    require_works(phase, cluster.config, cluster.customs);
    if (cluster.meetings.active()) {
        if (Meetings::takes(phase)) return make_met(rank, stream);
        // Except for phases that are computed as a whole, the order of events within a tick can
        // determine which event ends the phase.
        cluster.tied = true;
    }
    if (phase.custom != nullptr) return make_custom(rank, stream);
    if (phase.blocks != nullptr) return make_uneven(rank, stream);
    if (is_rooted(phase.kind)) return make_rooted(rank, stream);
    switch (phase.implementation.algorithm) {
        case Implementation::Algorithm::HalvingDoubling:
            return make_halving_doubling(rank, stream);
        case Implementation::Algorithm::DoubleBinaryTree:
            return make_double_binary_tree(rank, stream);
        default:
            return make_ring_or_direct(rank, stream);
    }
}

}  // namespace chakrascope::engine

#include "clusters.h"

#include <algorithm>
#include <cmath>

namespace chakrascope::engine::flow {
namespace {

// Acknowledgements that wait less than this fraction of a round trip are not counted as waiting.
constexpr double kNotable = 0.05;

double between(double low, double value, double high) {
    return std::clamp((value - low) / (high - low), 0.0, 1.0);
}

}  // namespace

Clusters::Clusters(std::vector<double> capacities)
    : capacities_(std::move(capacities)), clusters_(capacities_.size()) {}

void Clusters::change(std::uint32_t link, const Stake& stake, int sign) {
    Cluster& cluster = clusters_[link];
    if (cluster.flows == 0) {
        cluster = {};
        cluster.base = stake.joined;
    }
    cluster.flows += sign;
    const double bytes = sign * stake.bytes;
    const double joined = stake.joined - cluster.base;
    cluster.bytes += bytes;
    cluster.rtt += bytes * stake.rtt;
    cluster.joined += bytes * joined;
    cluster.squares += bytes * joined * joined;
    cluster.burst += bytes * stake.burst;
    any_ = true;
    if (cluster.changed) return;
    cluster.changed = true;
    changed_.push_back(link);
}

const std::vector<std::uint32_t>& Clusters::take_changed() {
    for (const std::uint32_t link : changed_) clusters_[link].changed = false;
    taken_.swap(changed_);
    changed_.clear();
    return taken_;
}

// Return the time to drain the queue of a link: the time to send the windows of all flows, minus the mean
// round-trip time of the flows without queues.
double Clusters::queue_time(std::uint32_t link) const {
    const Cluster& cluster = clusters_[link];
    if (cluster.flows == 0 || cluster.bytes < 1) return 0;
    return std::max(cluster.bytes / capacities_[link] - cluster.rtt / cluster.bytes, 0.0);
}

// If data queues in both directions, windows travel in clusters (ACK compression). Acknowledgements wait
// behind data of the other direction and leave together, and the packets that they release also leave
// together. Links are then idle for half of each round trip.
double Clusters::wait(const Window& window, std::uint32_t queue, std::span<const std::uint32_t> back) {
    double wait = 0;
    for (const std::uint32_t link : back) {
        const Cluster& there = clusters_[link];
        if (there.flows == 0 || there.bytes < 1) continue;
        wait += queue_time(link);
        if (queue == kNone || clusters_[queue].flows == 0) continue;
        const Cluster& here = clusters_[queue];
        const double length = there.bytes / capacities_[link];
        const double both = std::min({length, here.bytes / capacities_[queue], window.rtt});
        const double stuck = std::max(both - window.rtt / 2, 0.0) * together(here, there, window.rtt);
        two_way_ = two_way_ || (stuck > kNotable * window.rtt && window.count > 1);
        wait += stuck;
    }
    return wait;
}

// Return the degree (0 to 1) to which two clusters stay together. In experiments with the packet model,
// clusters stayed together if their senders were faster than the link and had begun within a fraction of the
// round trip.
double Clusters::together(const Cluster& one, const Cluster& other, double rtt) const {
    double share = 1;
    for (const Cluster* cluster : {&one, &other}) {
        const double mean = cluster->joined / cluster->bytes;
        const double spread = std::sqrt(std::max(cluster->squares / cluster->bytes - mean * mean, 0.0));
        share = std::min(share, 1 - between(0.1 * rtt, spread, 0.28 * rtt));
        const double flows = std::min(cluster->flows, 2);
        share = std::min(share, between(1.0, cluster->burst / cluster->bytes, 1.0 + flows));
    }
    const double apart =
        std::abs(one.base + one.joined / one.bytes - other.base - other.joined / other.bytes);
    return share * (1 - 0.4 * between(0.25 * rtt, apart, 0.5 * rtt));
}

}  // namespace chakrascope::engine::flow

// Applies changes of links during a simulation: links go down, come up or change their rate.
#include <algorithm>
#include <cmath>

#include "flow_network.h"

namespace chakrascope::engine::flow {

double FlowNetwork::next_change() const {
    return next_change_ < changes_.size() ? static_cast<double>(changes_[next_change_].time) : Ends::kNever;
}

// Apply all link changes of this time. Every flow leaves its links, and continues on a path that is still up.
void FlowNetwork::change_links(double time) {
    solve(time);
    ChangeRecord record;
    record.time_ns = static_cast<std::int64_t>(time) / 1000;
    std::vector<Stopped> stopped;
    for (std::uint32_t number = 0; number < flows_.size(); ++number)
        if (flows_[number].stage != Stage::kGone) stopped.push_back(stop(number, time));
    std::sort(stopped.begin(), stopped.end(), [this](const Stopped& a, const Stopped& b) {
        return flows_[a.flow].order < flows_[b.flow].order;
    });
    sharing_.solve();
    set_rates(static_cast<Ticks>(time));
    find_ways(stopped, record);
    go_on(stopped, time);
    report_.changes.push_back(record);
    solve(time);
}

FlowNetwork::Stopped FlowNetwork::stop(std::uint32_t number, double time) {
    Flow& flow = flows_[number];
    Stopped stopped;
    stopped.flow = number;
    if (flow.stage == Stage::kUnrouted) return stopped;
    const std::span<const std::uint32_t> path = sharing_.forward(flow.bundle);
    stopped.path.assign(path.begin(), path.end());
    if (flow.stage == Stage::kFlowing) {
        validity_.left(checked(flow));
        if (flow.hop > 0) sharing_.clusters().remove(path[flow.hop], stake(flow));
        const double left = pacing_.take(flow.bundle, number, time);
        // A sender notices the loss after a round trip. All data that it sends until then is lost.
        stopped.rate = pacing_.rate(flow.bundle);
        stopped.flying = std::clamp(flow.amount - left, 0.0, stopped.rate * windows_[flow.bundle].rtt);
        sharing_.leave(flow.bundle);
        const auto packets_left = static_cast<std::uint64_t>(std::ceil(left / timing_.packet_bytes()));
        const std::uint64_t sent = flow.packets.count - std::min(packets_left, flow.packets.count);
        use_links(flow, std::max(sent, flow.counted));
        flow.counted = std::max(sent, flow.counted);
        if (recording_) tell_history(flow, flow.wire * (1 - std::clamp(left / flow.amount, 0.0, 1.0)));
        flow.wire -= flow.recorded;
        flow.recorded = 0;
        flow.amount = left;
        flow.begun = true;
    }
    leave_bundle(flow);
    return stopped;
}

void FlowNetwork::set_rates(Ticks time) {
    for (; next_change_ < changes_.size() && changes_[next_change_].time <= time; ++next_change_) {
        const LinkChange& change = changes_[next_change_];
        routes_.set_rate(change.link, change.rate_bps);
        for (const std::uint32_t link : {2 * change.link, 2 * change.link + 1}) {
            timing_.set_rate(link, change.rate_bps);
            sharing_.set_line(link, timing_.line(link, routes_.is_host(routes_.directions()[link].from)));
        }
    }
    routes_.refresh();
    ++era_;
    if (settings_.global_window) longest_ = routes_.largest(settings_.payload_bytes);
    std::fill(standing_.begin(), standing_.end(), Standing{});
}

void FlowNetwork::find_ways(std::vector<Stopped>& stopped, ChangeRecord& record) {
    for (Stopped& item : stopped) {
        Flow& flow = flows_[item.flow];
        const bool cut = std::any_of(item.path.begin(), item.path.end(), [this](std::uint32_t link) {
            return routes_.directions()[link].rate_bps == 0;
        });
        if (cut) {
            flow.amount += item.flying;
            record.lost += static_cast<std::uint64_t>(std::ceil(item.flying / timing_.packet_bytes()));
        }
        item.has_way = find_path(flow);
        if (!item.has_way) {
            if (next_change_ == changes_.size()) throw no_way(flow);
            ++record.waiting;
            flow.stage = Stage::kUnrouted;
            continue;
        }
        take_bundle(flow);
        const std::span<const std::uint32_t> path = sharing_.forward(flow.bundle);
        if (!item.path.empty() && !std::equal(path.begin(), path.end(), item.path.begin(), item.path.end()))
            ++record.rerouted;
    }
}

// Resume the stopped flows; flows in flight keep their rates.
void FlowNetwork::go_on(const std::vector<Stopped>& stopped, double time) {
    std::vector<double> reached(flows_.size(), time);
    for (; !reaches_.empty(); reaches_.pop()) reached[reaches_.top().flow] = reaches_.top().time;
    for (const Stopped& item : stopped) {
        if (!item.has_way) continue;
        Flow& flow = flows_[item.flow];
        const std::uint32_t hop = flow.hop;
        find_contended(flow);
        const std::span<const std::uint32_t> path = sharing_.forward(flow.bundle);
        // Data that has passed the first link has not necessarily passed the later links.
        if (std::equal(path.begin(), path.end(), item.path.begin(), item.path.end()))
            flow.amount += std::min(item.rate * (timing_.head(path, flow.hop, flow.packets) -
                                                 timing_.head(path, hop, flow.packets)),
                                    item.flying);
        flow.amount = std::max(flow.amount, 0.0);
        if (!flow.begun) flow.amount = amount(flow);
        if (flow.stage == Stage::kFlowing) {
            flow.waited = true;
            flow.joined = time;
            arrived_.push_back(item.flow);
            continue;
        }
        const double head = timing_.head(sharing_.forward(flow.bundle), flow.hop, flow.packets);
        const double reach = flow.stage == Stage::kUnrouted ? time + head : reached[item.flow];
        flow.stage = Stage::kInTransit;
        reaches_.push({reach, flow.order, item.flow});
    }
}

ConfigError FlowNetwork::no_way(const Flow& flow) const {
    if (report_.changes.empty() && next_change_ == 0) {
        return ConfigError("There is no path from host " + std::to_string(host(flow.source)) + " to host " +
                           std::to_string(host(flow.destination)) +
                           " over the links of the network; add the links that join them.");
    }
    return ConfigError(
        "There is no path from rank " + std::to_string(flow.source) + " to rank " +
        std::to_string(flow.destination) + " over the links that are up from " +
        std::to_string(changes_[next_change_ - 1].time / 1000) +
        " ns on, and a message between them can never arrive; let a failure of these links end ('until'), or "
        "leave links that join them.");
}

}  // namespace chakrascope::engine::flow

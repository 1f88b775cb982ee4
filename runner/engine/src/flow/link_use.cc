// Records the traffic of links, in total and over time.
#include <algorithm>
#include <cmath>

#include "flow_network.h"

namespace chakrascope::engine::flow {
namespace {

// A remainder smaller than 1 - kNearly of a packet is a rounding error.
constexpr double kNearly = 1 - 1e-9;

}  // namespace

const FabricReport* FlowNetwork::report() const {
    const bool lost = std::any_of(report_.changes.begin(), report_.changes.end(),
                                  [](const ChangeRecord& change) { return change.lost > 0; });
    report_.flags = validity_.flags(sharing_.clusters(), lost);
    report_.events = solutions_;
    report_.intervals.clear();
    for (std::uint32_t link = 0; recording_ && link < report_.links.size(); ++link)
        history_.tell(link, report_.links[link].source, report_.links[link].destination, report_.intervals);
    return &report_;
}

const std::vector<LinkUse>& FlowNetwork::links() const {
    uses_.clear();
    for (const FabricLinkUse& use : report_.links) {
        const auto busy = static_cast<Time>(static_cast<double>(use.busy) / kPsPerNs);
        uses_.push_back({use.source, use.destination, use.bytes, busy,
                         static_cast<Time>(static_cast<double>(use.queued) / kPsPerNs), use.packets});
    }
    return uses_;
}

// Count the first `packets` packets of a flow at the links of its path, except packets that were already
// counted.
void FlowNetwork::use_links(const Flow& flow, std::uint64_t packets) {
    const Packets& data = flow.packets;
    const std::uint64_t more = packets - flow.counted;
    if (more == 0) return;
    const bool last = packets == data.count;
    const auto full_bytes = static_cast<std::uint64_t>(timing_.packet_bytes());
    const std::uint64_t bytes = (more - last) * full_bytes + (last ? data.last_bytes : 0);
    report_.data_packets += more;
    for (const std::uint32_t link : sharing_.forward(flow.bundle)) {
        FabricLinkUse& use = report_.links[link];
        use.bytes += bytes;
        use.packets += more;
        use.busy += static_cast<Ticks>(static_cast<double>(more - last) * timing_.full(link) +
                                       (last ? timing_.sending(link, data.last_bytes) : 0));
    }
    const auto answers =
        static_cast<std::uint64_t>(std::ceil(static_cast<double>(more) * timing_.answers() * kNearly));
    for (const std::uint32_t link : sharing_.back(flow.bundle)) {
        FabricLinkUse& use = report_.links[link];
        use.bytes += answers * settings_.ack_bytes();
        use.packets += answers;
        use.busy += static_cast<Ticks>(static_cast<double>(answers) * timing_.answer(link));
    }
}

// Add the queueing time of a flow at the link where the flow waited. Data arrives faster than it leaves until
// all data is sent, so the window limits the average queue.
void FlowNetwork::use_queue(const Flow& flow, double time) {
    const double life = time - flow.joined;
    if (flow.hop == 0 || !(life > 0)) return;
    const std::span<const std::uint32_t> path = sharing_.forward(flow.bundle);
    const Window& window = windows_[flow.bundle];
    const double rate = flow.amount / life;
    const double line = sharing_.line(path[0]).capacity / std::max(expected_[path[0]], 1);
    const double surplus = line - rate;
    if (!(surplus > 0)) return;
    const double most = std::max(window.bytes - rate * window.rtt, 0.0);
    const double peak = std::min(most, surplus * flow.amount / line);
    const double standing = peak * (life - (peak / surplus + peak / rate) / 2);
    report_.links[path[flow.hop]].queued += static_cast<Ticks>(standing / timing_.packet_bytes());
}

// Record the traffic of all flows in the intervals that have ended. Rates have been constant since the last
// step.
void FlowNetwork::record(double time) {
    if (!recording_) return;
    for (double end = history_.end(); end <= time; end = history_.end()) {
        for (std::uint32_t bundle = 0; bundle < pacing_.size(); ++bundle) {
            if (pacing_.leaving(bundle).empty()) continue;
            const double served = pacing_.served(bundle, end);
            for (const Pacing::Leaving& item : pacing_.leaving(bundle)) {
                Flow& flow = flows_[item.flow];
                const double through = 1 - std::clamp((item.key - served) / flow.amount, 0.0, 1.0);
                tell_history(flow, flow.wire * through);
            }
        }
        history_.go_on();
    }
}

// Add the wire bytes that a flow has sent to the history. `bytes` is the total number of wire bytes of
// the flow so far.
void FlowNetwork::tell_history(Flow& flow, double bytes) {
    const double more = bytes - flow.recorded;
    if (!(more > 0)) return;
    flow.recorded = bytes;
    for (const std::uint32_t link : sharing_.forward(flow.bundle)) history_.add(link, more);
    const double answers = more * timing_.answers() * settings_.ack_bytes() / timing_.packet_bytes();
    for (const std::uint32_t link : sharing_.back(flow.bundle)) history_.add(link, answers);
}

}  // namespace chakrascope::engine::flow

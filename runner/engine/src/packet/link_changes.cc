// Applies link changes during a packet simulation: links go down, come up or change their rate.
#include "simulation.h"

namespace chakrascope::packet {

// Schedule the next link changes. Link changes up to time 0 apply before the first message is sent.
void Simulation::wait_for_change() {
    if (next_change_ == changes_.size()) return;
    const Ticks delay = changes_[next_change_].time - world_.clock.now();
    if (delay <= 0) return change_links();
    world_.clock.post<&Simulation::change_links>(delay, this);
}

// Apply all link changes of this time. Packets on links that go down are lost. Then, all messages use the
// remaining paths.
void Simulation::change_links() {
    engine::ChangeRecord record;
    record.time_ns = world_.clock.now() / 1000;
    bool other_ways = false;
    while (next_change_ < changes_.size() && changes_[next_change_].time <= world_.clock.now())
        other_ways = change_link(changes_[next_change_++], record) || other_ways;
    if (other_ways) routes_.refresh();
    size_for_links();
    if (other_ways) reroute(record);
    for (const auto& flow : flows_) {
        if (flow && flow->started && !flow->done)
            flow->change_line(static_cast<double>(flow->out().rate_bps()));
    }
    if (other_ways) {
        for (Port* port : ports_) port->kick();
    }
    changed_.push_back(record);
    wait_for_change();
}

// Apply one link change. Returns whether the link went down or came up.
bool Simulation::change_link(const engine::LinkChange& change, engine::ChangeRecord& record) {
    routes_.set_rate(change.link, change.rate_bps);
    bool other_ways = false;
    for (const std::uint32_t direction : {2 * change.link, 2 * change.link + 1}) {
        Port& port = *ports_[direction];
        other_ways = port.up() != (change.rate_bps > 0);
        if (change.rate_bps > 0) {
            port.set_rate(change.rate_bps);
        } else if (port.up()) {
            record.lost += port.take_down();
        }
    }
    return other_ways;
}

// Reroute messages. A message without a path waits if a link may still come up.
void Simulation::reroute(engine::ChangeRecord& record) {
    if (!flows_.empty()) world_.router = this;
    for (const auto& owner : flows_) {
        if (!owner || owner->done) continue;
        Flow& flow = *owner;
        const std::vector<Port*> before = flow.forth;
        const std::vector<Port*> before_back = flow.back;
        find_paths(flow);
        if (flow.forth.empty()) {
            if (awaited(flow) && next_change_ == changes_.size()) throw no_way(flow);
            if (awaited(flow)) ++record.waiting;
            if (!flow.started) continue;
            // Otherwise, the message stays on its old path and loses its packets, as on a host that does not
            // know of the failure.
            flow.forth = before;
            flow.back = before_back;
        } else if (flow.forth != before || flow.back != before_back) {
            if (flow.started && awaited(flow)) ++record.rerouted;
            take_other_path(flow, before);
        }
    }
}

void Simulation::take_other_path(Flow& flow, const std::vector<Port*>& before) {
    if (flow.waits_for_way) return begin(&flow);
    if (!flow.started) return;
    flow.moved_at = flow.sent;
    if (flow.control) flow.control->moved();
    if (flow.listed && before.front() != flow.forth.front()) flow.source.move(flow, *before.front());
}

// Return whether the job still waits for the message.
bool Simulation::awaited(const Flow& flow) const {
    return !flow.done && (!flow.delivered || world_.settings.astra_sim_clock);
}

Port* Simulation::way_out(std::int32_t node, const Packet& packet) {
    const Flow& flow = *packet.flow;
    const bool data = packet.kind == Kind::Data;
    const std::int32_t source = (data ? flow.source : flow.destination).id();
    const std::int32_t destination = (data ? flow.destination : flow.source).id();
    if (routes_.ways(node, destination).empty()) return nullptr;
    const std::uint32_t ports =
        data ? engine::data_ports(flow.source_port) : engine::answer_ports(flow.source_port);
    return ports_[routes_.next(node, source, destination, ports)];
}

engine::ConfigError Simulation::no_way(const Flow& flow) const {
    const std::int32_t source = flow.source.id();
    const std::int32_t destination = flow.destination.id();
    if (changed_.empty() && next_change_ == 0) {
        return engine::ConfigError("There is no path from host " + std::to_string(source) + " to host " +
                                   std::to_string(destination) +
                                   " over the links of the network; add the links that join them.");
    }
    const Ticks time = changes_[next_change_ - 1].time;
    return engine::ConfigError(
        "There is no path from rank " + std::to_string(ranks_[static_cast<std::size_t>(source)]) +
        " to rank " + std::to_string(ranks_[static_cast<std::size_t>(destination)]) +
        " over the links that are up from " + std::to_string(time / 1000) +
        " ns on, and a message between them can never arrive; let a failure of these links end ('until'), or "
        "leave links that join them.");
}

}  // namespace chakrascope::packet

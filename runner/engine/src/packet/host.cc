#include "host.h"

#include <algorithm>
#include <limits>

namespace chakrascope::packet {

Port& Host::add_port() {
    interfaces_.emplace_back();
    return ports_.emplace_back(*this, static_cast<std::uint16_t>(ports_.size()), world_);
}

void Host::start(Flow& flow) {
    flow.next_send = world_.clock.now();
    flow.last_progress = world_.clock.now();
    flow.listed = true;
    Interface& interface = interfaces_[flow.out().index()];
    interface.turn = interface.flows.empty() ? flow.train : std::max(interface.turn, flow.train);
    interface.flows.push_back(&flow);
    flow.out().kick();
}

// Return the next packet of a port. Acknowledgements are sent first, followed by the messages that may send,
// in round-robin order.
Packet* Host::next(Port& port) {
    Interface& interface = interfaces_[port.index()];
    if (!interface.acknowledgements.empty() && (settings_.ack_high_priority || !port.paused())) {
        return interface.acknowledgements.pop();
    }
    if (Packet* control = port.pop()) return control;
    Flow* flow = choose(port, interface);
    if (!flow) {
        set_alarm(port, interface);
        return nullptr;
    }
    Packet* packet = make_data(*flow, interface.turn_left);
    interface.turn_left -= std::min(interface.turn_left, packet->followers + 1u);
    return packet;
}

// Return the next message that may send, unless the port is paused. Drops finished messages from the list.
Flow* Host::choose(const Port& port, Interface& interface) {
    std::vector<Flow*>& flows = interface.flows;
    const std::size_t count = flows.size();
    Flow* chosen = nullptr;
    std::size_t stale = count;
    std::size_t place = 0;
    const bool stays =
        interface.turn_left > 0 && interface.last < count && may_send(port, *flows[interface.last]);
    for (std::size_t step = stays ? 0 : 1; step <= count && !chosen; ++step) {
        place = (interface.last + step) % count;
        Flow& flow = *flows[place];
        if (flow.finished()) {
            stale = std::min(stale, place);
        } else if (may_send(port, flow)) {
            chosen = &flow;
        }
    }
    if (!stays) interface.turn_left = interface.turn;
    if (stale < count) {
        const auto first = flows.begin() + static_cast<std::ptrdiff_t>(stale);
        flows.erase(std::remove_if(first, flows.end(),
                                   [](Flow* flow) {
                                       flow->listed = flow->listed && !flow->finished();
                                       return flow->finished();
                                   }),
                    flows.end());
        if (chosen)
            place = static_cast<std::size_t>(std::find(flows.begin(), flows.end(), chosen) - flows.begin());
    }
    if (chosen) interface.last = place;
    if (!chosen) interface.turn_left = 0;
    return chosen;
}

bool Host::may_send(const Port& port, const Flow& flow) const {
    return !port.paused() && flow.left() > 0 && flow.next_send <= world_.clock.now() && !flow.window_full();
}

// Set an alarm for the time at which the first message may send its next packet. As in ASTRA-sim, the alarm
// also counts messages that have used up their window and wait for an acknowledgement.
void Host::set_alarm(Port& port, Interface& interface) {
    if (world_.clock.pending(interface.alarm)) return;
    Ticks earliest = std::numeric_limits<Ticks>::max();
    for (const Flow* flow : interface.flows) {
        const bool waits_for_time = flow->left() > 0 && !flow->window_full();
        if (waits_for_time || settings_.astra_sim_clock) earliest = std::min(earliest, flow->next_send);
    }
    if (earliest > world_.clock.now() && earliest != std::numeric_limits<Ticks>::max()) {
        interface.alarm = world_.clock.after<&Port::kick>(earliest - world_.clock.now(), &port);
    }
}

void Host::wake_by(Port& port, Ticks time) {
    Interface& interface = interfaces_[port.index()];
    if (!world_.clock.pending(interface.alarm) || time >= interface.alarm.time) return;
    world_.clock.cancel(interface.alarm);
    interface.alarm = world_.clock.after<&Port::kick>(std::max<Ticks>(time - world_.clock.now(), 0), &port);
}

Packet* Host::make_data(Flow& flow, std::uint32_t most) {
    Packet* packet = world_.pool.take();
    ++flow.packets;
    ++world_.pool.data_packets;
    packet->kind = Kind::Data;
    packet->flow = &flow;
    packet->path = flow.forth_path;
    const std::uint32_t payload = fill(flow, *packet, most);
    packet->bytes = payload + (packet->followers + 1u) * header_bytes_;
    packet->sequence = flow.sent;
    if (settings_.control == Control::Timely) {
        if (!packet->telemetry) packet->telemetry = std::make_unique<Telemetry>();
        packet->telemetry->sent = world_.clock.now();
    }
    flow.sent += payload;
    if (packet->followers > 0) {
        packet->spread = 0;
        packet->queued_since = world_.clock.now();
        flow.next_send = world_.clock.now() + flow.out().sending_time_of_all(*packet);
        flow.left_as_train();
        return packet;
    }
    flow.last_bytes = packet->bytes;
    flow.next_send = world_.clock.now() + flow.gap(settings_.rate_bound ? flow.rate_bps : flow.line_bps);
    return packet;
}

// Fill a packet or train with as many packets as a train may have, and return their payload bytes.
std::uint32_t Host::fill(const Flow& flow, Packet& packet, std::uint32_t turn) {
    const std::uint64_t left = flow.left();
    const std::uint32_t most = std::min(flow.train_now(), turn);
    if (most <= 1) return static_cast<std::uint32_t>(std::min<std::uint64_t>(settings_.payload_bytes, left));
    const std::uint64_t full = settings_.payload_bytes;
    std::uint64_t payload = std::min(most * full, left);
    // Leave the last full packet for the next train, because a short last packet that is sent alone could
    // overtake this train.
    if (payload < left && left - payload < full) payload -= full;
    packet.followers = static_cast<std::uint8_t>((payload - 1) / full);
    world_.pool.data_packets += packet.followers;
    world_.largest_train = std::max(world_.largest_train, packet.followers + 1u);
    return static_cast<std::uint32_t>(payload);
}

void Host::receive(Port&, Packet* packet) {
    if (packet->kind == Kind::Data) {
        take_data(packet);
    } else {
        take_answer(packet);
    }
}

// Receive a data packet: accept bytes in order, request missing bytes again, and acknowledge duplicates.
void Host::take_data(Packet* packet) {
    Flow& flow = *packet->flow;
    if (packet->sequence == flow.expected) {
        const std::uint32_t payload = packet->bytes - (packet->followers + 1u) * header_bytes_;
        flow.expected += payload;
        flow.unacknowledged += payload;
        if (flow.expected >= flow.size && !flow.delivered) {
            flow.delivered = true;
            reports_.delivered(flow);
        }
        const bool boundary = settings_.chunk_bytes > 0 && flow.expected % settings_.chunk_bytes == 0;
        if (flow.unacknowledged >= settings_.ack_interval_bytes || boundary || flow.delivered ||
            packet->marked) {
            flow.unacknowledged = 0;
            return answer(packet, Kind::Ack);
        }
    } else if (packet->sequence < flow.expected) {
        return answer(packet, Kind::Ack);
    } else if (world_.clock.now() >= flow.next_nack || flow.last_nack != flow.expected) {
        flow.next_nack = world_.clock.now() + settings_.nack_interval;
        flow.last_nack = flow.expected;
        if (settings_.back_to_zero && settings_.chunk_bytes > 0) {
            flow.expected -= flow.expected % settings_.chunk_bytes;
        }
        return answer(packet, Kind::Nack);
    }
    drop(packet);
}

// Turn a data packet into its acknowledgement, which carries marks and telemetry back.
void Host::answer(Packet* packet, Kind kind) {
    Flow& flow = *packet->flow;
    packet->kind = kind;
    packet->step = 0;
    packet->path = flow.back_path;
    if (kind == Kind::Nack) packet->followers = 0;
    packet->bytes = settings_.ack_bytes() * (packet->followers + 1u);
    packet->sequence = flow.expected;
    Port& port = *flow.back.front();
    if (!port.up()) return port.lose(packet);
    PacketQueue& waiting = interfaces_[port.index()].acknowledgements;
    const bool may_pass = waiting.empty() && (settings_.ack_high_priority || !port.paused());
    if (may_pass && port.pass(packet, true)) return;
    waiting.push(packet);
    port.kick();
}

void Host::take_answer(Packet* packet) {
    Flow& flow = *packet->flow;
    if (!flow.done) {
        std::uint64_t sequence = packet->sequence;
        if (settings_.back_to_zero && settings_.chunk_bytes > 0) sequence -= sequence % settings_.chunk_bytes;
        if (sequence > flow.acknowledged) {
            flow.acknowledged = sequence;
            flow.last_progress = world_.clock.now();
            flow.answered_until(sequence);
        }
        if (packet->sequence >= flow.size) {
            flow.acknowledged = flow.size;
            finish(flow);
        } else {
            if (packet->kind == Kind::Nack) flow.sent = flow.acknowledged;
            flow.sent = std::max(flow.sent, flow.acknowledged);
            if (flow.control && packet->sequence >= flow.moved_at) flow.control->acknowledged(flow, *packet);
        }
    }
    drop(packet);
    flow.out().kick();
}

std::uint64_t Host::discard(Port& port) {
    std::uint64_t lost = 0;
    PacketQueue& acknowledgements = interfaces_[port.index()].acknowledgements;
    for (; !acknowledgements.empty(); ++lost) port.lose(acknowledgements.pop());
    return lost;
}

void Host::move(Flow& flow, const Port& before) {
    std::erase(interfaces_[before.index()].flows, &flow);
    interfaces_[flow.out().index()].flows.push_back(&flow);
}

void Host::drop(Packet* packet) {
    --packet->flow->packets;
    world_.pool.give_back(packet);
}

void Host::finish(Flow& flow) {
    flow.done = true;
    flow.sent = flow.size;
    if (flow.control) flow.control->finished();
    flow.control.reset();
    reports_.acknowledged(flow);
}

}  // namespace chakrascope::packet

#include "switch.h"

#include <algorithm>
#include <cmath>

#include "flow.h"
#include "host.h"
#include "hpcc.h"

namespace chakrascope::packet {
namespace {

constexpr std::uint64_t kResumeOffsetBytes = 3072;
constexpr std::uint32_t kPauseFrameBytes = 31;

double lookup(const std::map<std::uint64_t, double>& table, std::uint64_t rate) {
    if (table.empty()) return 0;
    const auto found = table.lower_bound(rate);
    return found != table.end() ? found->second : table.rbegin()->second;
}

}  // namespace

Port& Switch::add_port() {
    Port& port = ports_.emplace_back(*this, static_cast<std::uint16_t>(ports_.size()), world_);
    by_number_.push_back(&port);
    return port;
}

void Switch::build(std::uint64_t interface_rate_bps, Ticks longest_rtt) {
    ingress_.resize(ports_.size());
    marking_.resize(ports_.size());
    waiting_bytes_.resize(ports_.size());
    loads_.resize(ports_.size());
    longest_rtt_ = longest_rtt;
    std::uint64_t set_aside = 0;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        const Port& port = ports_[i];
        ingress_[i].shift = Ingress{}.shift;
        ingress_[i].headroom_limit = 0;
        if (!port.up()) continue;
        const auto delay_ns = static_cast<unsigned __int128>(port.delay() / 1000);
        ingress_[i].headroom_limit =
            static_cast<std::uint64_t>(port.rate_bps() * delay_ns / 8'000'000'000ull) *
            settings_.headroom_factor;
        for (std::uint64_t rate = port.rate_bps(); rate > interface_rate_bps && ingress_[i].shift > 0;
             rate /= 2) {
            --ingress_[i].shift;
        }
        marking_[i] = {lookup(settings_.mark_low_kb, port.rate_bps()) * 1000,
                       lookup(settings_.mark_high_kb, port.rate_bps()) * 1000,
                       lookup(settings_.mark_probability, port.rate_bps())};
        set_aside += kReserveBytes + ingress_[i].headroom_limit;
    }
    pool_bytes_ = settings_.buffer_bytes > set_aside ? settings_.buffer_bytes - set_aside : 0;
}

std::uint64_t Switch::smallest_share() const {
    std::uint64_t share = pool_bytes_;
    for (const Ingress& ingress : ingress_) share = std::min(share, pool_bytes_ >> ingress.shift);
    return share;
}

void Switch::receive(Port& port, Packet* packet) {
    Port* const way = way_out(*packet);
    if (!way) return port.peer().lose(packet);
    Port& out = *way;
    const bool answer = packet->kind != Kind::Data;
    if (answer && out.pass(packet, settings_.ack_high_priority)) return;
    if (settings_.ack_high_priority && answer) return out.send_control(packet);
    const std::size_t ingress = port.index();
    if (!admit(ingress, packet->bytes)) {
        end_trains();
        return port.peer().lose(packet);
    }
    packet->ingress = port.index();
    waiting_bytes_[out.index()] += packet->bytes;
    if (world_.train > 1 && settings_.controlled()) end_trains_near_marks(out);
    pause_if_needed(ingress);
    out.send_data(packet);
}

// From now on, send no trains, because trains would be lost as a whole.
void Switch::end_trains() {
    world_.split_trains = world_.split_trains || world_.train > 1;
    world_.train = 1;
}

void Switch::end_trains_near_marks(const Port& out) {
    const auto waiting = static_cast<double>(waiting_bytes_[out.index()]);
    if (!settings_.mark || 2 * waiting < marking_[out.index()].low) return;
    end_trains();
    world_.trains_misled = world_.largest_train > 1;
    if (world_.trains_misled) world_.clock.stop();
}

Port* Switch::way_out(Packet& packet) {
    if (world_.router) return world_.router->way_out(id(), packet);
    const std::size_t step = ++packet.step;
    const std::uint8_t number = step < Path::kSteps ? packet.path.ports[step] : Path::kLookUp;
    if (number != Path::kLookUp) return by_number_[number];
    return (packet.kind == Kind::Data ? packet.flow->forth : packet.flow->back)[step];
}

Packet* Switch::next(Port& port) {
    Packet* packet = port.pop();
    if (packet) leave(port, packet);
    return packet;
}

// Drop the packets in the queue of a port whose link is down. The peer of the port is no longer paused.
std::uint64_t Switch::discard(Port& port) {
    std::uint64_t lost = 0;
    ingress_[port.index()].pausing = false;
    for (; Packet* packet = port.pop(); ++lost) {
        const bool counted = packet->kind == Kind::Data || (packet->flow && !settings_.ack_high_priority);
        if (counted) {
            release(packet->ingress, packet->bytes);
            waiting_bytes_[port.index()] -= packet->bytes;
            resume_if_possible(packet->ingress);
        }
        port.lose(packet);
    }
    return lost;
}

// Account for a packet that leaves. The packet is marked if the queue behind it is long enough, and gets
// telemetry.
void Switch::leave(Port& port, Packet* packet) {
    if (settings_.control == Control::HpccPint) report_load(port, *packet);
    if (packet->kind == Kind::Pause || packet->kind == Kind::Resume) return;
    const bool answer = packet->kind == Kind::Ack || packet->kind == Kind::Nack;
    if (!(settings_.ack_high_priority && answer)) {
        release(packet->ingress, packet->bytes);
        waiting_bytes_[port.index()] -= packet->bytes;
        if (packet->kind == Kind::Data && settings_.mark && should_mark(port.index())) packet->marked = true;
        resume_if_possible(packet->ingress);
    }
    if (packet->kind == Kind::Data && settings_.control == Control::Hpcc) {
        add_report(*packet, settings_,
                   {port.rate_bps(), world_.clock.now(), port.sent_bytes(), port.queued_bytes()});
    }
}

// Update the load that a packet carries for HPCC-PINT, which is the largest load on its path, coarsely
// quantised.
void Switch::report_load(Port& port, Packet& packet) {
    PortLoad& load = loads_[port.index()];
    if (packet.kind == Kind::Data) {
        const double now_loaded =
            load.update(world_.clock.now(), port.rate_bps(), port.queued_bytes(), longest_rtt_);
        packet.load = std::max(packet.load, encode_load(world_, now_loaded));
    }
    load.sent(world_.clock.now(), packet.bytes);
}

std::uint64_t Switch::shared(const Ingress& ingress) const {
    return ingress.bytes > kReserveBytes ? ingress.bytes - kReserveBytes : 0;
}

std::uint64_t Switch::threshold(const Ingress& ingress) const {
    return (pool_bytes_ > shared_bytes_ ? pool_bytes_ - shared_bytes_ : 0) >> ingress.shift;
}

// Admit a packet to the reserve and the shared pool or, if these are full, to the headroom. Returns false if
// the headroom is also full.
bool Switch::admit(std::size_t port, std::uint32_t bytes) {
    Ingress& ingress = ingress_[port];
    const std::uint64_t limit = threshold(ingress);
    if (ingress.headroom_bytes + bytes > ingress.headroom_limit && shared(ingress) + bytes > limit)
        return false;
    const std::uint64_t total = ingress.bytes + bytes;
    if (total > kReserveBytes && total - kReserveBytes > limit) {
        ingress.headroom_bytes += bytes;
        return true;
    }
    const std::uint64_t before = shared(ingress);
    ingress.bytes = total;
    shared_bytes_ += shared(ingress) - before;
    return true;
}

void Switch::release(std::size_t port, std::uint32_t bytes) {
    Ingress& ingress = ingress_[port];
    const std::uint64_t from_headroom = std::min<std::uint64_t>(ingress.headroom_bytes, bytes);
    ingress.headroom_bytes -= from_headroom;
    const std::uint64_t before = shared(ingress);
    ingress.bytes -= bytes - from_headroom;
    shared_bytes_ -= before - shared(ingress);
}

void Switch::pause_if_needed(std::size_t port) {
    Ingress& ingress = ingress_[port];
    if (ingress.pausing || (ingress.headroom_bytes == 0 && shared(ingress) < threshold(ingress))) return;
    ingress.pausing = true;
    send_pause(port, Kind::Pause);
}

// Return whether a port's peer may soon be paused. Trains would then give wrong results, because trains are
// counted and paused as a whole.
bool Switch::near_pause(const Port& port) const {
    const Ingress& ingress = ingress_[port.index()];
    return ingress.pausing || ingress.headroom_bytes > 0 || 8 * shared(ingress) >= 7 * threshold(ingress);
}

void Switch::resume_if_possible(std::size_t port) {
    Ingress& ingress = ingress_[port];
    if (!ingress.pausing || ingress.headroom_bytes > 0) return;
    const std::uint64_t used = shared(ingress);
    if (used > 0 && used + kResumeOffsetBytes > threshold(ingress)) return;
    ingress.pausing = false;
    send_pause(port, Kind::Resume);
}

void Switch::send_pause(std::size_t port, Kind kind) {
    Packet* packet = world_.pool.take();
    packet->kind = kind;
    packet->flow = nullptr;
    packet->bytes = kPauseFrameBytes;
    if (!ports_[port].pass(packet, true)) ports_[port].send_control(packet);
}

bool Switch::should_mark(std::size_t port) const {
    const Marking& marking = marking_[port];
    const auto waiting = static_cast<double>(waiting_bytes_[port]);
    if (waiting > marking.high) return true;
    if (waiting <= marking.low) return false;
    return world_.clock.chance() <
           marking.probability * (waiting - marking.low) / (marking.high - marking.low);
}

}  // namespace chakrascope::packet

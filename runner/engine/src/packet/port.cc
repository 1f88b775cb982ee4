#include "port.h"

#include <algorithm>

#include "flow.h"

namespace chakrascope::packet {

void Port::connect(Port& peer, std::uint64_t rate_bps, Ticks delay, double loss) {
    peer_ = &peer;
    rate_bps_ = rate_bps;
    delay_ = delay;
    loss_ = loss;
}

void Port::set_rate(std::uint64_t rate_bps) {
    up_ = true;
    rate_bps_ = rate_bps;
    sending_times_ = {};
}

std::uint64_t Port::take_down() {
    up_ = false;
    if (paused_) use_.paused += world_.clock.now() - paused_since_;
    paused_ = false;
    const std::uint64_t known = std::max(arrived_, lost_until_);
    lost_until_ = peer_->use_.packets;
    return lost_until_ - known + owner_.discard(*this);
}

void Port::lose(Packet* packet) {
    ++use_.drops;
    if (packet->flow) {
        packet->flow->lost();
        --packet->flow->packets;
    }
    world_.pool.give_back(packet);
}

void Port::send_control(Packet* packet) {
    packet->queued_since = world_.clock.now();
    control_.push(packet);
    kick();
}

void Port::send_data(Packet* packet) {
    packet->queued_since = world_.clock.now();
    data_.push(packet);
    use_.largest_queue_bytes = std::max(use_.largest_queue_bytes, data_.bytes());
    kick();
}

Packet* Port::pop() {
    PacketQueue* queue = !control_.empty() ? &control_ : (!data_.empty() && !paused_ ? &data_ : nullptr);
    if (!queue) return nullptr;
    Packet* packet = queue->pop();
    use_.queued += world_.clock.now() - packet->queued_since;
    return packet;
}

void Port::kick() {
    if (busy_ || !up_) return;
    if (Packet* packet = owner_.next(*this)) transmit(packet);
}

void Port::transmit(Packet* packet) {
    const Ticks duration = sending_time(*packet);
    busy_ = true;
    use_.bytes += packet->bytes;
    use_.busy += duration;
    ++use_.packets;
    history_.add(world_.clock.now(), packet->bytes);
    world_.clock.post<&Port::transmitted>(duration, this);
    world_.clock.post<&Port::arrive>(duration + delay_, peer_, packet);
}

// Packets are all alike, but for data and answers: the last time of either is remembered.
Ticks Port::sending_time(const Packet& packet) {
    SendingTime& last = sending_times_[packet.kind == Kind::Data ? 0 : 1];
    if (last.bytes != packet.bytes)
        last = {packet.bytes, world_.settings.transmission(packet.bytes, rate_bps_)};
    return last.time;
}

void Port::transmitted() {
    busy_ = false;
    kick();
}

void Port::arrive(Packet* packet) {
    if (++arrived_ <= lost_until_) return peer_->lose(packet);
    if (packet->kind == Kind::Pause || packet->kind == Kind::Resume) {
        set_paused(packet->kind == Kind::Pause);
        world_.pool.give_back(packet);
        return;
    }
    if (loss_ > 0 && world_.clock.chance() < loss_) return peer_->lose(packet);
    owner_.receive(*this, packet);
}

void Port::set_paused(bool paused) {
    if (paused == paused_) return;
    paused_ = paused;
    if (paused) {
        ++use_.pauses;
        paused_since_ = world_.clock.now();
    } else {
        use_.paused += world_.clock.now() - paused_since_;
        kick();
    }
}

}  // namespace chakrascope::packet

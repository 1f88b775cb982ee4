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
    use_.drops += packet->followers + 1u;
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
    if (packet->followers > 0 && packet->kind == Kind::Data) {
        count_queue(*packet);
    } else {
        use_.largest_queue_bytes = std::max(use_.largest_queue_bytes, data_.bytes());
    }
    kick();
}

// Update the largest queue length. The queue is longest when the last packet of a train arrives. Earlier
// packets may have left by then.
void Port::count_queue(const Packet& train) {
    const Ticks now = world_.clock.now();
    const Ticks sending = std::max<Ticks>(now + train.spread - std::max(now, free_at_ + owed_), 0);
    const Ticks packet = std::max<Ticks>(sending_time(true, world_.full_bytes), 1);
    const auto left =
        static_cast<std::uint64_t>(sending / packet + (sending > 0 ? 1 : 0)) * world_.full_bytes;
    const std::uint64_t queued = data_.bytes() > left ? data_.bytes() - left : 0;
    use_.largest_queue_bytes = std::max({use_.largest_queue_bytes, queued, std::uint64_t{world_.full_bytes}});
}

// Return the total queueing delay of a train's further packets; the delay grows or shrinks linearly from
// packet to packet.
Ticks Port::followers_waited(const Packet& train, Ticks first) {
    if (train.kind != Kind::Data) return train.followers * first;
    const Ticks last = first + train.followers * sending_time(true, world_.full_bytes) - train.spread;
    return train.followers * (first + std::max<Ticks>(last, 0)) / 2;
}

Packet* Port::pop() {
    PacketQueue* queue = !control_.empty() ? &control_ : (!data_.empty() && !paused_ ? &data_ : nullptr);
    if (!queue) return nullptr;
    const Packet& first = *queue->first();
    if (first.followers > 0 && first.kind == Kind::Data && splits_trains()) return pop_first_of_train();
    Packet* packet = queue->pop();
    const Ticks waited = std::max<Ticks>(world_.clock.now() - packet->queued_since, 0);
    use_.queued += waited;
    if (packet->followers > 0) use_.queued += followers_waited(*packet, waited);
    return packet;
}

// Take the first packet from a queued train. The other packets stay in the queue as a train that arrived
// later.
Packet* Port::pop_first_of_train() {
    Packet& train = *data_.first();
    Packet* packet = world_.pool.take();
    packet->kind = Kind::Data;
    packet->flow = train.flow;
    packet->queued_since = train.queued_since;
    packet->sequence = train.sequence;
    packet->bytes = world_.full_bytes;
    packet->path = train.path;
    packet->step = train.step;
    packet->ingress = train.ingress;
    ++train.flow->packets;
    use_.queued += std::max<Ticks>(world_.clock.now() - train.queued_since, 0);
    const std::uint32_t apart = train.spread / train.followers;
    train.queued_since += apart;
    train.spread -= apart;
    train.sequence += world_.settings.payload_bytes;
    --train.followers;
    data_.shorten_first(world_.full_bytes);
    world_.split_trains = true;
    return packet;
}

void Port::kick() {
    if (busy_ || !up_) return;
    if (Packet* packet = owner_.next(*this)) transmit(packet);
}

void Port::transmit(Packet* packet) {
    if (packet->followers > 0) return transmit_train(packet);
    const Ticks duration = sending_time(packet->kind == Kind::Data, packet->bytes);
    busy_ = true;
    use_.bytes += packet->bytes;
    use_.busy += duration;
    ++use_.packets;
    history_.add(world_.clock.now(), packet->bytes);
    // A packet that was split from a train may not have arrived yet.
    const Ticks wait = std::max<Ticks>(packet->queued_since - world_.clock.now(), 0);
    world_.clock.post<&Port::transmitted>(wait + duration, this);
    world_.clock.post<&Port::arrive>(wait + duration + delay_, peer_, packet);
}

// Return the transmission time of a packet; the last result is cached, for data and acknowledgements
// separately.
Ticks Port::sending_time(bool data, std::uint32_t bytes) {
    SendingTime& last = sending_times_[data ? 0 : 1];
    if (last.bytes != bytes) last = {bytes, world_.settings.transmission(bytes, rate_bps_)};
    return last.time;
}

// Return the sum of the transmission times of a train's packets, each rounded to whole ticks.
Ticks Port::sending_time_of_all(const Packet& packet) {
    const std::uint32_t count = packet.followers + 1u;
    if (packet.kind != Kind::Data) return count * sending_time(false, packet.bytes / count);
    const std::uint32_t last = packet.bytes - packet.followers * world_.full_bytes;
    if (last == world_.full_bytes) return count * sending_time(true, last);
    return packet.followers * sending_time(true, world_.full_bytes) +
           world_.settings.transmission(last, rate_bps_);
}

// Send a train. A switch processes a train when the first packet arrives, and a host processes a train when
// the last packet arrives. If the outgoing link is faster than the incoming one, the last packet cannot leave
// before it has arrived. In reality, acknowledgements arrive one by one, so the last acknowledgement is as
// early as a single acknowledgement would be.
void Port::transmit_train(Packet* packet) {
    const Ticks now = world_.clock.now();
    const Ticks duration = sending_time_of_all(*packet);
    const bool data = packet->kind == Kind::Data;
    step_ = data ? sending_time(true, world_.full_bytes) : duration / (packet->followers + 1);
    free_at_ = now + duration;
    complete_at_ = data ? packet->queued_since + packet->spread : free_at_;
    busy_ = true;
    carry(*packet, duration);
    world_.clock.post<&Port::transmitted>(duration, this);
    Ticks arrival = step_;
    if (data) {
        arrival += std::max<Ticks>(packet->queued_since - now, 0);
        const Ticks last = duration - packet->followers * step_;
        const Ticks end = std::max(duration, complete_at_ + last - now);
        packet->spread = static_cast<std::uint32_t>(end - step_);
        if (peer_->owner_.is_host()) arrival = end;
    }
    world_.clock.post<&Port::arrive>(arrival + delay_, peer_, packet);
}

void Port::carry(const Packet& packet, Ticks duration) {
    use_.bytes += packet.bytes;
    use_.busy += duration;
    use_.packets += packet.followers + 1u;
    history_.add(world_.clock.now(), packet.bytes);
}

bool Port::pass(Packet* packet, bool at_once) {
    if (step_ == 0) return false;
    const Ticks now = world_.clock.now();
    if (!at_once && (paused_ || !data_.empty() || complete_at_ <= now)) return false;
    const Ticks duration = sending_time_of_all(*packet);
    const Ticks each = duration / (packet->followers + 1);
    const Ticks boundary = now + (free_at_ - now) % step_;
    // Packets that overtake a train are sent one after another. In a train of acknowledgements, all except
    // the last have overtaken earlier.
    passing_until_ = std::max(passing_until_, boundary - (duration - each)) + duration;
    const Ticks start = std::max(boundary, passing_until_ - duration);
    owed_ += duration;
    carry(*packet, duration);
    use_.queued += (packet->followers + 1) * (start - now);
    world_.clock.post<&Port::arrive>(start - now + each + delay_, peer_, packet);
    return true;
}

void Port::transmitted() {
    if (owed_ > 0) return pay();
    busy_ = false;
    step_ = 0;
    kick();
}

// After a train, keep the port busy for the transmission time of the packets that overtook the train.
void Port::pay() {
    const Ticks owed = owed_;
    owed_ = 0;
    step_ = 0;
    world_.clock.post<&Port::transmitted>(owed, this);
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

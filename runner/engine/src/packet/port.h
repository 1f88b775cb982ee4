// A port is one end of a link. It sends one packet at a time, and no data while its peer pauses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../fabric/report.h"
#include "world.h"

namespace chakrascope::packet {

class Port;

// A host or a switch: chooses the next packet of each port, and processes received packets.
class Node {
  public:
    Node(std::int32_t id, bool host) : id_(id), host_(host) {}
    virtual ~Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    std::int32_t id() const { return id_; }
    bool is_host() const { return host_; }
    // Return the next packet to send through the port; null if no packet can be sent now.
    virtual Packet* next(Port& port) = 0;
    virtual void receive(Port& port, Packet* packet) = 0;
    // Whether this node may soon pause the port's peer, so that the peer must not send trains.
    virtual bool near_pause(const Port&) const { return false; }
    // Drop the packets in the queue of a port whose link is down, and return the number of dropped packets.
    virtual std::uint64_t discard(Port& port) = 0;

  private:
    const std::int32_t id_;
    const bool host_;
};

// Bytes sent in equal intervals from time 0, whose length doubles when there are too many.
struct SendHistory {
    static constexpr std::size_t kStretches = 64;

    Ticks width = 1'000'000;
    std::array<std::uint64_t, kStretches> bytes{};

    // Add `count` bytes sent at `time`, which must not decrease between calls.
    void add(Ticks time, std::uint64_t count) {
        if (time >= end_) move_to(time);
        bytes[current_] += count;
    }

  private:
    void move_to(Ticks time) {
        while (time / width >= static_cast<Ticks>(kStretches)) widen();
        current_ = static_cast<std::size_t>(time / width);
        end_ = static_cast<Ticks>(current_ + 1) * width;
    }

    void widen() {
        for (std::size_t i = 0; i < kStretches / 2; ++i) bytes[i] = bytes[2 * i] + bytes[2 * i + 1];
        for (std::size_t i = kStretches / 2; i < kStretches; ++i) bytes[i] = 0;
        width *= 2;
    }

    std::size_t current_ = 0;
    Ticks end_ = width;
};

class Port {
  public:
    Port(Node& owner, std::uint16_t index, World& world) : owner_(owner), index_(index), world_(world) {}

    void connect(Port& peer, std::uint64_t rate_bps, Ticks delay, double loss);

    Node& owner() const { return owner_; }
    Port& peer() const { return *peer_; }
    std::uint16_t index() const { return index_; }
    std::uint64_t rate_bps() const { return rate_bps_; }
    Ticks delay() const { return delay_; }
    bool lossy() const { return loss_ > 0; }
    bool up() const { return up_; }
    bool paused() const { return paused_; }
    const engine::FabricLinkUse& use() const { return use_; }
    const SendHistory& history() const { return history_; }
    std::uint64_t queued_bytes() const { return control_.bytes() + data_.bytes(); }
    std::uint64_t sent_bytes() const { return use_.bytes; }
    // Set the rate for the next packets. The link is up from now on.
    void set_rate(std::uint64_t rate_bps);
    // Take the link down in the direction to this port. Packets in flight to this port and packets in its
    // queue are lost. Returns the number of lost packets.
    std::uint64_t take_down();
    // Lose a packet that left by this port or was queued for this port.
    void lose(Packet* packet);

    // Queue a packet and send it as soon as possible. Control packets overtake data and ignore pauses.
    void send_control(Packet* packet);
    void send_data(Packet* packet);
    // Send an acknowledgement or control packet between the packets of the train that is being sent. This
    // requires `at_once`, or that the packet arrived before the last packet of the train and no other packet
    // waits. Returns false if the packet must queue.
    bool pass(Packet* packet, bool at_once);
    // Whether the packets of a train have to be sent one by one.
    bool splits_trains() const { return world_.train == 1 || peer_->owner_.near_pause(*peer_); }
    // Return the time from the first to the last bit of a train.
    Ticks sending_time_of_all(const Packet& packet);
    // Send the owner's next packet, unless a packet is already being sent.
    void kick();

    // Remove and return the first packet of the control queue or, unless paused, of the data queue; null if
    // there is no such packet.
    Packet* pop();

  private:
    struct SendingTime {
        std::uint32_t bytes = 0;
        Ticks time = 0;
    };

    Packet* pop_first_of_train();
    void transmit(Packet* packet);
    void transmit_train(Packet* packet);
    void carry(const Packet& packet, Ticks duration);
    void count_queue(const Packet& train);
    Ticks followers_waited(const Packet& train, Ticks first);
    Ticks sending_time(bool data, std::uint32_t bytes);
    void transmitted();
    void pay();
    void arrive(Packet* packet);
    void set_paused(bool paused);

    Node& owner_;
    const std::uint16_t index_;
    World& world_;
    Port* peer_ = nullptr;
    std::uint64_t rate_bps_ = 0;
    Ticks delay_ = 0;
    double loss_ = 0;
    bool busy_ = false;
    bool up_ = true;
    bool paused_ = false;
    Ticks paused_since_ = 0;
    std::uint64_t arrived_ = 0;     // packets from the peer
    std::uint64_t lost_until_ = 0;  // last packet on the link when the link went down
    // The train that is being sent.
    Ticks step_ = 0;         // transmission time of each packet of the train; 0: no train
    Ticks free_at_ = 0;      // time at which the train has left
    Ticks complete_at_ = 0;  // time at which the train's last packet arrives here
    Ticks owed_ = 0;         // transmission time of the packets that overtook the train
    Ticks passing_until_ = 0;
    PacketQueue control_;
    PacketQueue data_;
    std::array<SendingTime, 2> sending_times_;
    engine::FabricLinkUse use_;
    SendHistory history_;
};

}  // namespace chakrascope::packet

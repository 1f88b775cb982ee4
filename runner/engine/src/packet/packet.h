// A packet on the wire, a queue of packets, and a pool of packets.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include "settings.h"

namespace chakrascope::packet {

struct Flow;

enum class Kind : std::uint8_t { Data, Ack, Nack, Pause, Resume };

// Telemetry of HPCC: the state of the port by which a packet left a switch. Fields are as narrow as in a
// packet header, and wrap around.
struct HopReport {
    std::uint64_t rate_bps = 0;
    Ticks time = 0;
    std::uint64_t bytes = 0;
    std::uint64_t queue_bytes = 0;
};

// Feedback to senders other than congestion marks.
struct Telemetry {
    static constexpr std::size_t kHops = 5;

    Ticks sent = 0;  // send time, for TIMELY
    std::array<HopReport, kHops> reports;
};

// The outgoing port at each node of a packet's path, from the source. Ports beyond the array are looked up in
// the flow.
struct Path {
    static constexpr std::size_t kSteps = 8;
    static constexpr std::uint8_t kLookUp = 255;

    std::array<std::uint8_t, kSteps> ports{};
};

// A packet, or a train: consecutive packets of a message, all full except possibly the last, or the
// acknowledgements of such packets. A packet is as large as a cache line, because simulations of large
// fabrics spend most of their time fetching packets from memory.
struct alignas(64) Packet {
    Packet* next = nullptr;
    Flow* flow = nullptr;
    Ticks queued_since = 0;
    std::uint64_t sequence = 0;  // data: offset of its first byte; ack, nack: next expected byte
    std::uint32_t bytes = 0;     // on the wire
    std::uint32_t spread = 0;    // ticks from the arrival of the first packet of a train to the last
    Path path;
    std::uint16_t step = 0;      // index of the current node on the path
    std::uint16_t ingress = 0;   // port by which the packet entered the current switch
    std::uint16_t load = 0;      // largest load of a link on the packet's path so far, for HPCC-PINT
    std::uint8_t followers = 0;  // number of further packets of a train
    Kind kind : 4 = Kind::Data;
    bool marked : 1 = false;               // congestion mark of a switch; in an ack: that of the data packet
    std::uint8_t hops : 3 = 0;             // number of hops that have reported
    std::unique_ptr<Telemetry> telemetry;  // allocated by TIMELY or HPCC, and reused with the packet
};
static_assert(sizeof(Packet) == 64);
static_assert(Telemetry::kHops < 8);

// A FIFO queue of packets that allocates nothing.
class PacketQueue {
  public:
    bool empty() const { return first_ == nullptr; }
    Packet* first() const { return first_; }
    std::uint64_t bytes() const { return bytes_; }

    void push(Packet* packet) {
        packet->next = nullptr;
        (first_ ? last_->next : first_) = packet;
        last_ = packet;
        bytes_ += packet->bytes;
    }

    Packet* pop() {
        Packet* packet = first_;
        first_ = packet->next;
        bytes_ -= packet->bytes;
        return packet;
    }

    // Remove bytes of the first packet from the queue.
    void shorten_first(std::uint32_t bytes) {
        first_->bytes -= bytes;
        bytes_ -= bytes;
    }

  private:
    Packet* first_ = nullptr;
    Packet* last_ = nullptr;
    std::uint64_t bytes_ = 0;
};

class PacketPool {
  public:
    std::uint64_t data_packets = 0;  // data packets sent by hosts so far

    Packet* take() {
        if (!free_) {
            store_.emplace_back();
            return &store_.back();
        }
        Packet* packet = free_;
        free_ = packet->next;
        packet->marked = false;
        packet->hops = 0;
        packet->step = 0;
        packet->followers = 0;
        packet->load = 0;
        packet->next = nullptr;
        return packet;
    }

    void give_back(Packet* packet) {
        packet->next = free_;
        free_ = packet;
    }

  private:
    std::deque<Packet> store_;
    Packet* free_ = nullptr;
};

}  // namespace chakrascope::packet

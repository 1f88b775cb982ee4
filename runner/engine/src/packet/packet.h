// A packet on the wire, and queues and a pool of them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include "settings.h"

namespace chakrascope::packet {

struct Flow;

enum class Kind : std::uint8_t { Data, Ack, Nack, Pause, Resume };

// What a switch tells HPCC about the port a packet left by. Narrow fields wrap, as they would in a header.
struct HopReport {
    std::uint64_t rate_bps = 0;
    Ticks time = 0;
    std::uint64_t bytes = 0;
    std::uint64_t queue_bytes = 0;
};

struct Packet {
    static constexpr std::size_t kHops = 5;

    Packet* next = nullptr;
    Flow* flow = nullptr;
    Kind kind = Kind::Data;
    bool marked = false;         // by a switch: congestion; in an acknowledgement: the data was marked
    std::uint8_t hops = 0;       // that have reported
    std::uint8_t step = 0;       // on the path of its flow, forth or back
    std::uint16_t ingress = 0;   // the port by which it entered the switch it is in
    std::uint16_t load = 0;      // the largest on its way so far, for HPCC-PINT
    std::uint32_t bytes = 0;     // on the wire
    std::uint32_t payload = 0;   // of data
    std::uint64_t sequence = 0;  // data: its first byte; ack, nack: the next byte expected
    Ticks stamp = 0;             // when it was sent, for TIMELY
    Ticks queued_since = 0;
    std::unique_ptr<std::array<HopReport, kHops>> reports;  // kept from use to use once HPCC made them
};

// First in, first out, without allocations.
class PacketQueue {
  public:
    bool empty() const { return first_ == nullptr; }
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

  private:
    Packet* first_ = nullptr;
    Packet* last_ = nullptr;
    std::uint64_t bytes_ = 0;
};

class PacketPool {
  public:
    std::uint64_t data_packets = 0;  // sent by hosts so far

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

// Links with credit-based flow control and virtual channels, one request at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "../packet/clock.h"
#include "machine.h"

namespace chakrascope::gpu {

// A request or an answer in flight.
struct Parcel {
    std::vector<std::int32_t> way;  // links
    std::uint32_t at = 0;           // index of the next link
    std::uint32_t entered = 0;      // index of the first link inside the destination GPU
    std::uint8_t kind = 0;          // index of its class of virtual channels
    // The parcel's virtual channel within its class, on links out of a GPU and on links into a GPU.
    std::int32_t lane_out = 0, lane_in = 0;
    bool data = false;
    Fs came = 0;  // arrival time at its current queue
    std::uint64_t number = 0;
    std::uint32_t leaves = ~0u;  // index of the link that leaves the parcel's GPU
    // `left` is called when the parcel has passed the link out of its GPU, and `arrived` at the end of the
    // path.
    std::function<void()> left, arrived;
};

// Classes of parcels. Parcels of different classes must not wait for each other, so each class has separate
// virtual channels for incoming and outgoing parcels. Deadlock is impossible: outgoing parcels never wait for
// incoming parcels, parcels cross the mesh in dimension order, and memories and compute units accept every
// parcel.
enum ParcelKind : std::uint8_t { kRequest, kWrite, kAnswer };
constexpr std::int32_t kParcelKinds = 3;

enum class Arbitration : std::uint8_t { InTurn, RequestsFirst, FirstCome };

struct LinkSettings {
    double bytes_per_ns = 0;  // 0: transmission takes no time
    Fs latency = 0;
    std::int32_t buffer_flits = 0;  // buffer per virtual channel; 0: unlimited
    std::uint32_t header_bytes = 0;
    Arbitration arbitration = Arbitration::InTurn;
    // Whether the link leads to a switch, which accepts every parcel and has a queue per output.
    bool to_switch = false;
};

class Links {
  public:
    Links(const Machine& machine, packet::Clock& clock) : machine_(machine), clock_(clock) {}
    Links(const Links&) = delete;
    Links& operator=(const Links&) = delete;

    std::int32_t add(const LinkSettings& settings);
    Parcel& parcel();
    // Send a parcel, which queues with all parcels that start at the same link.
    void send(Parcel& parcel);
    // Free a parcel that was not sent.
    void drop(Parcel& parcel) { free_.push_back(&parcel); }

    struct Use {
        std::uint64_t bytes = 0, lines = 0;
        Fs busy = 0, queued = 0;
    };
    const Use& use(std::int32_t link) const { return link_at(link).use; }
    // Return the minimum or maximum number of credits over the virtual channels of a buffered link, as a
    // fraction (0 to 1) of the buffer.
    double least_credit() const { return least_credit_; }
    double most_credit() const { return most_credit_; }
    // Return the number of parcels in flight.
    std::uint64_t in_flight() const { return in_flight_; }

  private:
    struct Queue {
        std::int32_t link = -1;  // the link that ends at this queue; -1 if parcels start here
        std::int32_t channel = 0;
        std::deque<Parcel*> parcels;
    };
    struct Link {
        LinkSettings settings;
        std::vector<std::int32_t> credits;  // by virtual channel
        std::vector<Queue*> waiting;        // queues whose first parcel continues on this link
        std::vector<Queue> ends;            // by virtual channel
        std::deque<Queue> sources;          // parcels that start here, by class
        Queue* last = nullptr;
        Parcel* moving = nullptr;
        Use use;
    };
    struct Return {  // a return of credits
        std::int32_t link = 0, channel = 0, flits = 0;
    };

    Link& link_at(std::int32_t link) { return links_[static_cast<std::size_t>(link)]; }
    const Link& link_at(std::int32_t link) const { return links_[static_cast<std::size_t>(link)]; }
    std::int32_t channels() const { return 2 * kParcelKinds * machine_.virtual_channels; }
    std::int32_t channel(const Parcel& parcel) const;
    std::uint32_t bytes(const Parcel& parcel, const Link& link) const;
    std::int32_t flits(const Parcel& parcel) const;
    void enter(Queue& queue, Parcel& parcel);
    void wait_for_link(Queue& queue);
    void try_link(std::int32_t link);
    Queue* choose(Link& link);
    bool has_credit(const Link& link, const Parcel& parcel) const;
    void gone(Queue* queue);
    void come(Parcel* parcel);
    void give_back(Return* credit);
    void restore(const Return& credit);

    const Machine machine_;
    packet::Clock& clock_;
    std::deque<Link> links_;
    std::deque<Parcel> parcels_;
    std::vector<Parcel*> free_;
    std::deque<Return> returns_;
    std::vector<Return*> free_returns_;
    double least_credit_ = 1, most_credit_ = 1;
    std::uint64_t in_flight_ = 0, numbers_ = 0;
};

}  // namespace chakrascope::gpu

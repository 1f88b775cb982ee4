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
    std::uint32_t entered = 0;      // from this index of the path on, it is inside the destination GPU
    std::uint8_t kind = 0;          // index of its class of virtual channels
    // The channel within its class, on the way out of a GPU and on the way into one.
    std::int32_t lane_out = 0, lane_in = 0;
    bool data = false;
    Fs came = 0;  // where it is now
    std::uint64_t number = 0;
    std::uint32_t leaves = ~0u;  // the link of the path that leaves its GPU
    // Called when the parcel has passed that link, and at the end of the path.
    std::function<void()> left, arrived;
};

// The classes of parcels that may not wait for each other; each has channels for outgoing and for
// incoming parcels. Outgoing parcels never wait for incoming ones, the mesh is crossed in dimension
// order, and memories and units accept every parcel. No cycle of waits is therefore possible.
enum ParcelKind : std::uint8_t { kRequest, kWrite, kAnswer };
constexpr std::int32_t kParcelKinds = 3;

enum class Arbitration : std::uint8_t { InTurn, RequestsFirst, FirstCome };

struct LinkSettings {
    double bytes_per_ns = 0;  // 0: takes no time
    Fs latency = 0;
    std::int32_t buffer_flits = 0;  // buffer per virtual channel; 0: unlimited
    std::uint32_t header_bytes = 0;
    Arbitration arbitration = Arbitration::InTurn;
    // Leads to a switch, which accepts every parcel and has a queue per output.
    bool to_switch = false;
};

class Links {
  public:
    Links(const Machine& machine, packet::Clock& clock) : machine_(machine), clock_(clock) {}
    Links(const Links&) = delete;
    Links& operator=(const Links&) = delete;

    std::int32_t add(const LinkSettings& settings);
    Parcel& parcel();
    // Send the parcel: it waits for its first link with all others that start there.
    void send(Parcel& parcel);
    // Cancel a parcel that was created but not sent.
    void drop(Parcel& parcel) { free_.push_back(&parcel); }

    struct Use {
        std::uint64_t bytes = 0, lines = 0;
        Fs busy = 0, queued = 0;
    };
    const Use& use(std::int32_t link) const { return link_at(link).use; }
    // The minimum and maximum credits of any channel of a buffered link, as shares of its buffer:
    // between 0 and 1.
    double least_credit() const { return least_credit_; }
    double most_credit() const { return most_credit_; }
    // The number of parcels in flight.
    std::uint64_t under_way() const { return under_way_; }

  private:
    struct Queue {
        std::int32_t link = -1;  // the link that ends there; -1: parcels start here
        std::int32_t channel = 0;
        std::deque<Parcel*> parcels;
    };
    struct Link {
        LinkSettings settings;
        std::vector<std::int32_t> credits;  // by channel
        std::vector<Queue*> waiting;        // queues whose first parcel continues on this link
        std::vector<Queue> ends;            // by channel
        std::deque<Queue> sources;          // parcels that start here, by class
        Queue* last = nullptr;
        Parcel* moving = nullptr;
        Use use;
    };
    struct Return {  // of credits
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
    std::uint64_t under_way_ = 0, numbers_ = 0;
};

}  // namespace chakrascope::gpu

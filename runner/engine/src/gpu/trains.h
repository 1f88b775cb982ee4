// The fast fabric: the requests of a batch travel together, spread over their links and memory channels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "../packet/clock.h"
#include "fabric.h"
#include "mesh.h"
#include "server.h"

namespace chakrascope::gpu {

// Routers where lines start or end. Line n uses router n modulo the number of routers.
using Ends = std::vector<std::int32_t>;

// The routers of the on-chip network where lines start and end, the same on all GPUs.
struct Ways {
    std::vector<Ends> units;        // index n contains router n
    std::vector<Ends> ports;        // routers of the ports to each peer
    Ends memory;                    // router of each memory channel
    bool reads_everywhere = false;  // whether a wavefront reads from every router with memory channels
    // Mean number of hops from the memory to a peer's ports, and from there to a router.
    std::vector<double> memory_to_port;
    std::vector<std::vector<double>> port_to_unit;  // by router and peer

    Ways(const Machine& machine, const Mesh& mesh) {
        for (std::int32_t channel = 0; channel < machine.channels; ++channel)
            memory.push_back(machine.router_of_channel(channel));
        const auto routers = static_cast<std::int32_t>(std::set(memory.begin(), memory.end()).size());
        // Answers of up to four routers arrive in order, from different sides of the mesh.
        reads_everywhere = routers > 4 && machine.unroll >= routers;
        for (std::int32_t peer = 0; peer < machine.peers(); ++peer) {
            Ends& own = ports.emplace_back();
            const std::int32_t first = machine.first_port(peer);
            for (std::int32_t port = 0; port < machine.ports_to(peer); ++port)
                own.push_back(machine.router_of_port(first + port));
            memory_to_port.push_back(mean_hops(mesh, memory, own));
        }
        for (std::int32_t router = 0; router < machine.routers(); ++router) {
            units.push_back({router});
            auto& hops = port_to_unit.emplace_back();
            for (const Ends& own : ports) hops.push_back(mean_hops(mesh, own, units.back()));
        }
    }

  private:
    static double mean_hops(const Mesh& mesh, const Ends& from, const Ends& to) {
        double hops = 0;
        for (const std::int32_t start : from) {
            for (const std::int32_t end : to) hops += mesh.hops(start, end);
        }
        return hops / static_cast<double>(from.size() * to.size());
    }
};

// The link into a compute unit, shared by the answers to many batches. Answers from the GPU's own memory come
// from all sides of the mesh, between which routers alternate. A wavefront that reads from every memory
// router completes only when the answers of the furthest router arrive, so the answers to such wavefronts are
// served together, line by line in turn (`join`). All other answers are served earlier, train by train
// (`pass_by`), including answers from peers, which ports serialise. `Through` is called for an item when the
// last line of its train has passed.
template <class Owner, class Item, void (Owner::*Through)(Item*, Fs)>
class Inlet {
  public:
    Inlet(Owner& owner, packet::Clock& clock, const Server& server)
        : owner_(&owner), clock_(&clock), server_(server) {}

    void pass_by(Item* item) {
        server_.serve(item->train, kLineBytes);
        if (!items_.empty()) turn_ -= work(item) / static_cast<Fs>(items_.size());
        (owner_->*Through)(item, item->train.tail);
    }

    void join(Item* item) {
        share();
        const Fs first = items_.empty() ? server_.backlog(clock_->now()) : 0;
        items_.emplace_back(turn_ + first + work(item), ++joined_, item);
        std::push_heap(items_.begin(), items_.end(), std::greater<>());
        wait();
    }

  private:
    Fs work(const Item* item) const { return server_.line_time(kLineBytes) * item->train.lines; }

    // Divide the time since the last call equally among the waiting items.
    void share() {
        const Fs now = clock_->now();
        if (!items_.empty()) turn_ += (now - looked_) / static_cast<Fs>(items_.size());
        looked_ = now;
    }

    // Wake up at the earliest time at which the first item can be complete. Later arrivals only delay the
    // item.
    void wait() {
        const Fs left = std::max<Fs>(0, std::get<0>(items_.front()) - turn_);
        const Fs next = clock_->now() + left * static_cast<Fs>(items_.size());
        if (due_ >= 0 && due_ <= next) return;
        due_ = next;
        clock_->post<&Inlet::look>(next - clock_->now(), this);
    }

    void look() {
        if (clock_->now() != due_) return;  // an earlier wake-up replaced this one
        due_ = -1;
        share();
        // 1 fs for the rounding error of the division.
        while (!items_.empty() && std::get<0>(items_.front()) <= turn_ + 1) {
            Item* item = std::get<2>(items_.front());
            std::pop_heap(items_.begin(), items_.end(), std::greater<>());
            items_.pop_back();
            const Fs last = item->train.tail + server_.line_time(kLineBytes);
            (owner_->*Through)(item, std::max(clock_->now(), last));
        }
        if (!items_.empty()) wait();
    }

    Owner* owner_;
    packet::Clock* clock_;
    Server server_;
    Fs turn_ = 0;    // service time of an item that waited from the start
    Fs looked_ = 0;  // time at which `turn_` was computed
    Fs due_ = -1;    // time of the next wake-up; -1: none
    std::uint64_t joined_ = 0;
    std::vector<std::tuple<Fs, std::uint64_t, Item*>> items_;  // heap by `turn_` at completion
};

// A batch moves as one train from server to server. Servers are links of the mesh, ports and the memory. If
// several servers work in parallel, each serves a share of the lines. An event occurs wherever trains of
// different sources meet: after a link out of the GPU, and after the memory.
class TrainFabric final : public Fabric {
  public:
    // Of `copies` of GPUs that stay in step, the first stands for all.
    TrainFabric(const Machine& machine, std::int32_t gpus, std::int32_t copies, packet::Clock& clock);

    void load(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
              Listener& listener) override;
    void store(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
               Listener& listener) override;
    void load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first, std::uint32_t lines,
                  Listener& listener) override;
    void multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                   std::uint32_t lines, Listener& listener) override;
    void control(Place from, std::int32_t gpu, Arrival& arrival) override;
    void transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) override;
    void take_memory(std::int32_t gpu, double share) override;
    Fs memory_work(std::int32_t gpu) const override { return at(gpu).memory.busy(); }
    std::vector<LinkReport> links() const override;

  private:
    enum class Kind : std::uint8_t { Load, Store, Sum, Multicast, Control, Transfer };
    struct Trip;
    using Step = void (TrainFabric::*)(Trip*);
    // A trip with parallel legs. The trip continues when the last leg has ended.
    struct Gather {
        Train train;
        std::int32_t left = 0;
    };
    struct Trip {
        Kind kind;
        Place from;
        std::int32_t gpu;  // of the memory that the trip reads or writes
        Train train;
        Listener* listener = nullptr;
        Arrival* arrival = nullptr;
        Step step = nullptr;
        Trip* whole = nullptr;  // trip to which this leg belongs
        Gather gather;
        const std::vector<std::int32_t>* gpus = nullptr;
        std::uint64_t bytes_left = 0;
    };
    void leave_inlet(Trip* trip, Fs time) { after(time, trip, &TrainFabric::loaded); }
    using UnitInlet = Inlet<TrainFabric, Trip, &TrainFabric::leave_inlet>;
    struct Gpu {
        std::vector<Server> out;  // links out of compute units
        std::vector<UnitInlet> in;
        std::vector<Fs> mesh;  // time at which each link becomes free
        std::vector<Bank> up;  // links to each peer, or a single link to the switch
        Bank down;             // link from the switch
        Server sum;            // reduction in the switch for this GPU
        Bank memory;
        Server nic_out, nic_in;
        double memory_taken = 0;
    };
    Gpu& at(std::int32_t gpu) { return gpus_[place(gpu)]; }
    UnitInlet& inlet(Place place) { return at(place.gpu).in[static_cast<std::size_t>(place.unit)]; }
    const Gpu& at(std::int32_t gpu) const { return gpus_[place(gpu)]; }
    std::size_t place(std::int32_t gpu) const {
        const auto number = static_cast<std::size_t>(gpu);
        return number < gpus_.size() ? number : number % gpus_.size();
    }
    Trip& begin(Kind kind, Place from, std::int32_t gpu, std::uint32_t lines, std::uint64_t first = 0);
    void end(Trip* trip) { free_.push_back(trip); }
    void after(Fs time, Trip* trip, Step step);
    void take_step(Trip* trip) {
        trip->train.head = clock_.now();
        (this->*trip->step)(trip);
    }

    void cross(std::int32_t gpu, const Ends& from, const Ends& to, Train& train, std::uint32_t bytes);
    void leave_unit(Place from, Train& train, std::uint32_t bytes);
    void leave_gpu(Trip* trip, std::uint32_t bytes, std::uint32_t wire_bytes);
    void enter_gpu(std::int32_t gpu, Train& train, std::uint32_t bytes);
    void when_there(Trip* trip, Step step);
    void over_link(Trip* trip, Step step);
    bool ahead(std::uint32_t bytes) const { return machine_.fair && bytes == machine_.control_bytes; }
    std::uint32_t data_bytes() const { return kLineBytes + machine_.header_bytes; }
    const Ends& unit_router(Place place) const {
        return ways_.units[static_cast<std::size_t>(machine_.router_of_unit(place.unit))];
    }
    Trip& leg(Trip& whole, std::int32_t gpu);
    Fs way_back(const Trip& trip) const;

    void read_home(Trip* trip);
    void ask_peer(Trip* trip);
    void arrive_to_read(Trip* trip);
    void read(Trip* trip);
    void answer(Trip* trip);
    void answer_back(Trip* trip);
    void reach_unit(Trip* trip);
    void answer_home(Trip* trip);
    void enter_unit(Trip* trip);
    void loaded(Trip* trip);
    void write_home(Trip* trip);
    void send_data(Trip* trip);
    void sent(Trip* trip);
    void arrive_to_write(Trip* trip);
    void write(Trip* trip);
    void delivered(Trip* trip);
    void acknowledged(Trip* trip);
    void stored(Trip* trip);
    void ask_switch(Trip* trip);
    void ask_all(Trip* trip);
    void sum(Trip* leg);
    void summed(Trip* trip);
    void write_all(Trip* trip);
    void reach_home(Trip* trip);
    void send_control(Trip* trip);
    void arrive_control(Trip* trip);
    void take_control(Trip* trip);
    void arrived(Trip* trip);
    void send_piece(Trip* trip);
    void piece_sent(Trip* trip);
    void piece_arrives(Trip* trip);

    const Machine machine_;
    packet::Clock& clock_;
    const Mesh mesh_;
    const Ways ways_;
    const Fs hop_, link_latency_, memory_latency_;
    const std::int32_t copies_;
    std::vector<Gpu> gpus_;
    std::deque<Trip> trips_;
    std::vector<Trip*> free_;
};

}  // namespace chakrascope::gpu

// The fast fabric: the requests of a batch travel together, spread over their links and channels.
#pragma once

#include <deque>
#include <vector>

#include "../packet/clock.h"
#include "fabric.h"
#include "inlet.h"
#include "mesh.h"
#include "server.h"
#include "ways.h"

namespace chakrascope::gpu {

// A batch is one train from server to server: links of the mesh, ports, memory. If its lines spread
// over several servers, each gets its share. There is an event wherever a train meets others from
// other sources: after a link out of the GPU, and after the memory.
class TrainFabric final : public Fabric {
  public:
    TrainFabric(const Machine& machine, std::int32_t gpus, packet::Clock& clock);

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
    // Parallel legs of one trip, which continues when the last leg has ended.
    struct Gather {
        Train train;
        std::int32_t left = 0;
    };
    struct Trip {
        Kind kind;
        Place from;
        std::int32_t gpu;  // the GPU whose memory it reads or writes
        Train train;
        Listener* listener = nullptr;
        Arrival* arrival = nullptr;
        Step step = nullptr;
        Trip* whole = nullptr;  // the trip to which this leg belongs
        Gather gather;
        const std::vector<std::int32_t>* gpus = nullptr;
        std::uint64_t bytes_left = 0;
    };
    void leave_inlet(Trip* trip, Fs time) { after(time, trip, &TrainFabric::loaded); }
    using UnitInlet = Inlet<TrainFabric, Trip, &TrainFabric::leave_inlet>;
    struct Gpu {
        std::vector<Server> out;  // of units
        std::vector<UnitInlet> in;
        std::vector<Fs> mesh;  // the time until which each link is busy
        std::vector<Bank> up;  // links to each peer, or a single one to the switch
        Bank down;             // from the switch
        Server sum;            // the switch's reduction for this GPU
        Bank memory;
        Server nic_out, nic_in;
        double memory_taken = 0;
    };
    Gpu& at(std::int32_t gpu) { return gpus_[static_cast<std::size_t>(gpu)]; }
    UnitInlet& inlet(Place place) { return at(place.gpu).in[static_cast<std::size_t>(place.unit)]; }
    const Gpu& at(std::int32_t gpu) const { return gpus_[static_cast<std::size_t>(gpu)]; }
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
    std::vector<Gpu> gpus_;
    std::deque<Trip> trips_;
    std::vector<Trip*> free_;
};

}  // namespace chakrascope::gpu

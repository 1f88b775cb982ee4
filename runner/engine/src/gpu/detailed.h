// The slow fabric: every request goes from router to router, with buffers and credits.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "fabric.h"
#include "links.h"
#include "mesh.h"
#include "server.h"

namespace chakrascope::gpu {

class DetailedFabric final : public Fabric {
  public:
    DetailedFabric(const Machine& machine, std::int32_t gpus, packet::Clock& clock);

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
    Fs memory_work(std::int32_t gpu) const override;
    std::vector<LinkReport> links() const override;

    const Links& on_chip() const { return links_; }

  private:
    using Way = std::vector<std::int32_t>;
    struct Gpu {
        Way out, in;                   // links into and out of compute units
        Way mesh;                      // links
        Way up, down;                  // links by port; `down` comes from the switch
        Way into_memory, from_memory;  // by memory channel
        std::vector<Server> memory;    // by memory channel
        Server sum, copy_out, nic_out, nic_in;
        double memory_taken = 0;
    };

    Gpu& at(std::int32_t gpu) { return gpus_[static_cast<std::size_t>(gpu)]; }
    const Gpu& at(std::int32_t gpu) const { return gpus_[static_cast<std::size_t>(gpu)]; }
    void connect(Gpu& gpu);
    void cross(Way& way, std::int32_t gpu, std::int32_t from, std::int32_t to) const;
    std::int32_t channel(std::uint64_t line) const;
    std::int32_t port(std::int32_t from, std::int32_t to, std::uint64_t line) const;
    std::int32_t end_port(std::int32_t from, std::int32_t to, std::int32_t port) const;
    // Append links to a path: to a port and over the port's link (`leave`), or from a port into a GPU
    // (`enter`).
    void leave(Way& way, std::int32_t gpu, std::int32_t router, std::int32_t port) const;
    void enter(Way& way, std::int32_t gpu, std::int32_t port, std::int32_t router) const;
    Parcel& parcel(ParcelKind kind, bool data, Way way, std::uint32_t entered);
    // Create a parcel from a compute unit to the memory channel of a line (`to_memory`), or from the memory
    // channel to the compute unit.
    Parcel& to_memory(ParcelKind kind, bool data, Place from, std::int32_t gpu, std::uint64_t line);
    Parcel& to_unit(ParcelKind kind, std::int32_t gpu, Place to, std::uint64_t line);
    Parcel& to_switch(ParcelKind kind, bool data, Place from, std::uint64_t line);
    Parcel& from_switch(ParcelKind kind, bool data, std::int32_t gpu, std::uint64_t line);
    // Serve a line at a memory channel, then call `then`.
    void serve(std::int32_t gpu, std::uint64_t line, Fs after, std::function<void()> then);
    void acknowledge(Place from, std::int32_t gpu, std::uint64_t line, Listener& listener);
    void read_for_sum(std::int32_t gpu, std::uint64_t line, std::function<void()> came);
    void answer_sum(Place from, std::uint64_t line, Listener& listener);
    void write_from_switch(std::int32_t gpu, std::uint64_t line, Listener& listener,
                           std::function<void()> written);
    void later(Fs delay, std::function<void()> then);
    void run_later(std::function<void()>* then);

    const Machine machine_;
    packet::Clock& clock_;
    const Mesh mesh_;
    Links links_;
    std::vector<Gpu> gpus_;
};

}  // namespace chakrascope::gpu

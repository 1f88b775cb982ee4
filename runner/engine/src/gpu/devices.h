// The simulated GPUs: compute units that run workgroups, kernels that wait for units, proxies, and the
// fabric.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "../packet/clock.h"
#include "fabric.h"
#include "run.h"
#include "worker.h"

namespace chakrascope::gpu {

// When an operation of a workgroup started and ended.
struct Stamp {
    std::uint64_t kernel;
    std::int32_t member, workgroup, place;
    Fs start, end;
};

struct Counts {
    std::uint64_t asked_lines = 0, loaded_lines = 0;      // equal once all requests have completed
    std::uint64_t stored_lines = 0, delivered_lines = 0;  // a line counts once per destination
    std::uint64_t controls = 0, transfers = 0;
};

// A blocked workgroup, or workgroups that never ran on a compute unit (workgroup -1).
struct Stuck {
    std::uint64_t kernel;
    std::int32_t member, workgroup, place;
    Worker::Waits waits;
};

struct Completion {
    std::uint64_t id;
    Fs time;
};

struct Settings {
    bool detailed = false;  // simulate every request through every router
    bool stamps = false;
};

class Devices {
  public:
    // Of `copies` of GPUs that stay in step, only the first is simulated.
    Devices(const Machine& machine, std::int32_t gpus, const Settings& settings, std::int32_t copies = 1);
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;
    ~Devices();

    // Launch work at the given time, or now if the time has passed: the kernel of one member of a run
    // (`launch`), a computation, given its duration alone on the GPU and its share of the memory bandwidth
    // (`compute`), or a transfer by proxies (`transfer`).
    void launch(std::shared_ptr<Run> run, std::int32_t member, Fs time, std::uint64_t id);
    void compute(std::int32_t gpu, Fs duration, double memory_share, Fs time, std::uint64_t id);
    void transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Fs time, std::uint64_t id);
    // Simulate to the end of the instant at which an operation completes, but not past the limit (-1: none).
    const std::vector<Completion>& advance(Fs limit, const std::function<bool(Fs)>& keep_going);

    std::vector<Stuck> stuck() const;
    const Counts& counts() const { return counts_; }
    const std::vector<Stamp>& stamps() const { return stamps_; }
    std::vector<LinkReport> links() const { return fabric_->links(); }
    std::uint64_t events() const { return clock_.events(); }
    const Fabric& fabric() const { return *fabric_; }

    // For workers:
    const Machine& machine() const { return machine_; }
    const Settings& settings() const { return settings_; }
    packet::Clock& clock() { return clock_; }
    Fabric& fabric() { return *fabric_; }
    Counts& counts() { return counts_; }
    // Let a batch issue its requests when the compute unit can accept them.
    void ask(Batch& batch);
    void release(Place place, std::uint32_t lines);
    // Return the time at which the compute unit will have reduced another `bytes` bytes.
    Fs reduce(Place place, std::uint64_t bytes);
    void add(Run& run, std::int32_t member, std::int32_t counter, std::int64_t value);
    void send_control(Worker& worker, std::int32_t member, const CounterUse& use);
    void hand_to_proxy(Worker& worker, std::int32_t member, std::uint64_t bytes, std::int32_t counter);
    void stamp(const Stamp& stamp) { stamps_.push_back(stamp); }
    void done(Worker& worker);
    Batch& new_batch(Worker& worker);
    void free(Batch& batch) { free_batches_.push_back(&batch); }
    Posting& new_posting(Worker& worker, const Access& target);
    void free(Posting& posting) { free_postings_.push_back(&posting); }

  private:
    struct Unit {
        std::int32_t slots = 0;  // free slots
        std::int64_t requests = 0;
        std::deque<Batch*> waiting;
        Fs reduces_until = 0;
    };
    struct Gpu {
        std::vector<Unit> units;
        std::int32_t next_unit = 0;
        std::int32_t slots = 0;       // free workgroup slots of all units
        std::deque<Kernel*> kernels;  // kernels with workgroups left to place
        std::deque<ComputeKernel*> computations;
        Fs memory_seen = 0;  // work of the memory at the last round of computation
        Fs looked = 0;
    };
    // A control request in flight, which changes a counter on arrival.
    struct Message final : Arrival {
        Devices* devices = nullptr;
        std::shared_ptr<Run> run;
        std::int32_t member = 0, counter = kNone;
        std::int64_t value = 1;
        void arrived() override;
    };
    // A transfer by a proxy; transfers between the same two GPUs become visible in order.
    struct Errand final : Arrival {
        Devices* devices = nullptr;
        std::shared_ptr<Run> run;  // the run of the transfer; null outside of runs
        std::uint64_t id = 0;
        Worker* worker = nullptr;
        std::int32_t member = 0, counter = kNone;
        std::int32_t from = 0, to = 0;
        std::uint64_t bytes = 0;
        bool through = false;
        void arrived() override;
    };
    // Workgroups of a computation that start together.
    struct Round {
        Devices* devices = nullptr;
        ComputeKernel* kernel = nullptr;
        std::vector<std::int32_t> units;
        double memory_share = 0;
    };

    Gpu& at(std::int32_t gpu) { return gpus_[static_cast<std::size_t>(gpu)]; }
    Unit& unit(Place place) { return at(place.gpu).units[static_cast<std::size_t>(place.unit)]; }
    void enqueue(Kernel* kernel);
    void enqueue_computation(ComputeKernel* kernel);
    void place(std::int32_t gpu);
    std::int32_t take_slot(Gpu& gpu);
    void begin_round(Gpu& gpu, ComputeKernel& kernel);
    void end_round(Round* round);
    Fs round_time(Gpu& gpu, const ComputeKernel& kernel, std::uint32_t count);
    void carry(Errand* errand);
    void see(Errand& errand);
    void complete(std::uint64_t id);
    void stop() { clock_.stop(); }

    const Machine machine_;
    const Settings settings_;
    packet::Clock clock_;
    std::unique_ptr<Fabric> fabric_;
    std::vector<Gpu> gpus_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Kernel>> kernels_;
    std::unordered_map<std::uint64_t, std::unique_ptr<ComputeKernel>> computations_;
    std::unordered_map<const Worker*, std::unique_ptr<Worker>> workers_;
    std::deque<Batch> batches_;
    std::vector<Batch*> free_batches_;
    std::deque<Posting> postings_;
    std::vector<Posting*> free_postings_;
    std::deque<Message> messages_;
    std::vector<Message*> free_messages_;
    std::deque<Errand> errands_;
    std::vector<Errand*> free_errands_;
    std::map<std::pair<std::int32_t, std::int32_t>, std::deque<Errand*>> order_;
    std::deque<Round> rounds_;
    std::vector<Round*> free_rounds_;
    std::vector<Completion> completions_;
    packet::Timer settle_;
    std::vector<Stamp> stamps_;
    Counts counts_;
};

}  // namespace chakrascope::gpu

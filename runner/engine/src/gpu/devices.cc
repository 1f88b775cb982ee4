#include "devices.h"

#include <algorithm>

#include "../errors.h"
#include "detailed.h"
#include "trains.h"

namespace chakrascope::gpu {
namespace {

template <class Item>
Item& take(std::deque<Item>& pool, std::vector<Item*>& free) {
    if (free.empty()) return pool.emplace_back();
    Item& item = *free.back();
    free.pop_back();
    return item;
}

std::unique_ptr<Fabric> make_fabric(const Machine& machine, std::int32_t gpus, bool detailed,
                                    std::int32_t copies, packet::Clock& clock) {
    if (detailed) return std::make_unique<DetailedFabric>(machine, gpus, clock);
    return std::make_unique<TrainFabric>(machine, gpus, copies, clock);
}

}  // namespace

Devices::Devices(const Machine& machine, std::int32_t gpus, const Settings& settings, std::int32_t copies)
    : machine_(machine),
      settings_(settings),
      fabric_(make_fabric(machine, gpus, settings.detailed, copies, clock_)),
      gpus_(static_cast<std::size_t>(gpus / copies)) {
    for (Gpu& gpu : gpus_) {
        gpu.units.resize(static_cast<std::size_t>(machine.units));
        for (Unit& unit : gpu.units) unit.slots = machine.workgroups_per_unit;
        gpu.slots = machine.units * machine.workgroups_per_unit;
    }
}

Devices::~Devices() = default;

// Kernels: launch, queue, and placement of workgroups on compute units.

void Devices::launch(std::shared_ptr<Run> run, std::int32_t member, Fs time, std::uint64_t id) {
    auto& kernel = kernels_[id] = std::make_unique<Kernel>();
    kernel->id = id;
    kernel->run = std::move(run);
    kernel->member = member;
    kernel->left = static_cast<std::uint32_t>(kernel->workgroups().size());
    const Fs start = std::max(time, clock_.now()) + to_fs(machine_.launch_ns);
    clock_.post<&Devices::enqueue>(start - clock_.now(), this, kernel.get());
}

void Devices::enqueue(Kernel* kernel) {
    const std::int32_t gpu = kernel->run->gpu(kernel->member);
    if (kernel->left == 0) {
        const std::uint64_t id = kernel->id;
        kernels_.erase(id);
        return complete(id);
    }
    at(gpu).kernels.push_back(kernel);
    place(gpu);
}

void Devices::compute(std::int32_t gpu, Fs duration, double memory_share, Fs time, std::uint64_t id) {
    auto& kernel = computations_[id] = std::make_unique<ComputeKernel>();
    kernel->id = id;
    kernel->gpu = gpu;
    kernel->duration = duration;
    kernel->memory_share = memory_share;
    kernel->all = static_cast<std::uint32_t>(machine_.units * machine_.workgroups_per_unit) *
                  static_cast<std::uint32_t>(machine_.compute_waves);
    kernel->left = kernel->all;
    clock_.post<&Devices::enqueue_computation>(std::max(time, clock_.now()) - clock_.now(), this,
                                               kernel.get());
}

void Devices::enqueue_computation(ComputeKernel* kernel) {
    at(kernel->gpu).computations.push_back(kernel);
    place(kernel->gpu);
}

// Place workgroups on compute units. Workgroups of communication are placed first, each on the next unit with
// free slots. Workgroups of computation then fill the remaining slots.
void Devices::place(std::int32_t number) {
    Gpu& gpu = at(number);
    while (gpu.slots > 0 && !gpu.kernels.empty()) {
        Kernel& kernel = *gpu.kernels.front();
        const auto workgroup = static_cast<std::int32_t>(kernel.placed++);
        if (kernel.placed == kernel.workgroups().size()) gpu.kernels.pop_front();
        auto worker = std::make_unique<Worker>(*this, kernel, workgroup, Place{number, take_slot(gpu)});
        Worker& begins = *worker;
        workers_[&begins] = std::move(worker);
        begins.start();
    }
    while (gpu.slots > 0 && !gpu.computations.empty()) {
        ComputeKernel& kernel = *gpu.computations.front();
        begin_round(gpu, kernel);
        if (kernel.begun == kernel.all) gpu.computations.pop_front();
    }
}

std::int32_t Devices::take_slot(Gpu& gpu) {
    while (gpu.units[static_cast<std::size_t>(gpu.next_unit)].slots == 0)
        gpu.next_unit = (gpu.next_unit + 1) % machine_.units;
    const std::int32_t unit = gpu.next_unit;
    --gpu.units[static_cast<std::size_t>(unit)].slots;
    --gpu.slots;
    gpu.next_unit = (unit + 1) % machine_.units;
    return unit;
}

void Devices::done(Worker& worker) {
    const Place place_of = worker.place();
    auto& kernel = *kernels_.at(worker.kernel().id);
    workers_.erase(&worker);
    ++unit(place_of).slots;
    ++at(place_of.gpu).slots;
    if (--kernel.left == 0) {
        const std::uint64_t id = kernel.id;
        kernels_.erase(id);
        complete(id);
    }
    place(place_of.gpu);
}

// Computation, in rounds of workgroups.

void Devices::begin_round(Gpu& gpu, ComputeKernel& kernel) {
    Round& round = take(rounds_, free_rounds_);
    round.devices = this;
    round.kernel = &kernel;
    round.units.clear();
    const std::uint32_t count = std::min(static_cast<std::uint32_t>(gpu.slots), kernel.all - kernel.begun);
    const Fs time = round_time(gpu, kernel, count);
    for (std::uint32_t taken = 0; taken < count; ++taken) round.units.push_back(take_slot(gpu));
    round.memory_share = kernel.memory_share * count * machine_.compute_waves / kernel.all;
    fabric_->take_memory(kernel.gpu, round.memory_share);
    kernel.begun += count;
    clock_.post<&Devices::end_round>(time, this, &round);
}

// Return the duration of a round, which is a share of the kernel's time. If computation and the requests
// since the last round need more than the memory bandwidth, the round is longer by this ratio.
Fs Devices::round_time(Gpu& gpu, const ComputeKernel& kernel, std::uint32_t count) {
    const auto part = [&](std::uint64_t workgroups) {
        return static_cast<Fs>(static_cast<double>(kernel.duration) * static_cast<double>(workgroups) /
                               kernel.all);
    };
    const std::uint32_t all = kernel.all / static_cast<std::uint32_t>(machine_.compute_waves);
    const std::uint32_t turn = kernel.begun / all;
    const Fs time = part(std::uint64_t{turn + 1} * all) - part(std::uint64_t{turn} * all);
    const Fs work = fabric_->memory_work(kernel.gpu), now = clock_.now();
    double wanted = kernel.memory_share * count / all;
    if (now > gpu.looked)
        wanted += static_cast<double>(work - gpu.memory_seen) / static_cast<double>(now - gpu.looked);
    gpu.memory_seen = work;
    gpu.looked = now;
    const bool short_of_memory = kernel.memory_share > 0 && wanted > 1;
    return short_of_memory ? static_cast<Fs>(static_cast<double>(time) * wanted) : time;
}

void Devices::end_round(Round* round) {
    ComputeKernel& kernel = *round->kernel;
    const std::int32_t gpu = kernel.gpu;
    for (const std::int32_t number : round->units) ++unit({gpu, number}).slots;
    at(gpu).slots += static_cast<std::int32_t>(round->units.size());
    fabric_->take_memory(gpu, -round->memory_share);
    kernel.left -= static_cast<std::uint32_t>(round->units.size());
    free_rounds_.push_back(round);
    if (kernel.left == 0) {
        const std::uint64_t id = kernel.id;
        computations_.erase(id);
        complete(id);
    }
    place(gpu);
}

// Requests in flight and reductions of compute units.

void Devices::ask(Batch& batch) {
    Unit& own = unit(batch.worker->place());
    const std::uint32_t lines = batch.worker->lines_of(batch);
    if (!own.waiting.empty() || (own.requests > 0 && own.requests + lines > machine_.requests_per_unit)) {
        own.waiting.push_back(&batch);
        return;
    }
    own.requests += lines;
    batch.worker->ask(batch);
}

void Devices::release(Place place, std::uint32_t lines) {
    Unit& own = unit(place);
    own.requests -= lines;
    while (!own.waiting.empty()) {
        Batch& next = *own.waiting.front();
        const std::uint32_t wanted = next.worker->lines_of(next);
        if (own.requests > 0 && own.requests + wanted > machine_.requests_per_unit) return;
        own.waiting.pop_front();
        own.requests += wanted;
        next.worker->ask(next);
    }
}

Fs Devices::reduce(Place place, std::uint64_t bytes) {
    Unit& own = unit(place);
    const double ns = static_cast<double>(bytes) / machine_.reduce_bytes_per_ns;
    own.reduces_until = std::max(own.reduces_until, clock_.now()) + to_fs(ns);
    return own.reduces_until;
}

Batch& Devices::new_batch(Worker& worker) {
    Batch& batch = take(batches_, free_batches_);
    batch.worker = &worker;
    return batch;
}

Posting& Devices::new_posting(Worker& worker, const Access& target) {
    Posting& posting = take(postings_, free_postings_);
    posting.worker = &worker;
    posting.target = &target;
    posting.complete = false;
    posting.unacknowledged = 0;
    posting.to_come.clear();
    return posting;
}

// Counters of runs, and control requests that change counters.

void Devices::add(Run& run, std::int32_t member, std::int32_t number, std::int64_t value) {
    Counter& counter = run.counter(member, number);
    counter.value += value;
    for (Worker* worker : std::exchange(counter.waiting, {})) worker->woken();
}

void Devices::send_control(Worker& worker, std::int32_t member, const CounterUse& use) {
    Message& message = take(messages_, free_messages_);
    message.devices = this;
    message.run = worker.kernel().run;
    message.member = member;
    message.counter = use.counter;
    message.value = use.value;
    ++counts_.controls;
    fabric_->control(worker.place(), worker.run().gpu(member), message);
}

void Devices::Message::arrived() {
    devices->add(*run, member, counter, value);
    run.reset();
    devices->free_messages_.push_back(this);
}

// Transfers by proxies.

void Devices::hand_to_proxy(Worker& worker, std::int32_t member, std::uint64_t bytes, std::int32_t counter) {
    Errand& errand = take(errands_, free_errands_);
    errand.devices = this;
    errand.run = worker.kernel().run;
    errand.worker = &worker;
    errand.member = member;
    errand.counter = counter;
    errand.from = worker.place().gpu;
    errand.to = worker.run().gpu(member);
    errand.bytes = bytes;
    errand.through = false;
    clock_.post<&Devices::carry>(to_fs(machine_.proxy_ns), this, &errand);
}

void Devices::transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Fs time, std::uint64_t id) {
    Errand& errand = take(errands_, free_errands_);
    errand.devices = this;
    errand.id = id;
    errand.worker = nullptr;
    errand.from = from;
    errand.to = to;
    errand.bytes = bytes;
    errand.through = false;
    const Fs start = std::max(time, clock_.now()) + to_fs(machine_.proxy_ns);
    clock_.post<&Devices::carry>(start - clock_.now(), this, &errand);
}

void Devices::carry(Errand* errand) {
    order_[{errand->from, errand->to}].push_back(errand);
    ++counts_.transfers;
    fabric_->transfer(errand->from, errand->to, errand->bytes, *errand);
}

void Devices::Errand::arrived() {
    through = true;
    auto& queue = devices->order_[{from, to}];
    while (!queue.empty() && queue.front()->through) {
        Errand& first = *queue.front();
        queue.pop_front();
        first.devices->see(first);
    }
}

void Devices::see(Errand& errand) {
    const std::shared_ptr<Run> run = std::exchange(errand.run, nullptr);
    free_errands_.push_back(&errand);
    if (run == nullptr) return complete(errand.id);
    if (errand.counter != kNone) add(*run, errand.member, errand.counter, 1);
    errand.worker->transferred();
}

// Completions of operations, and progress of time.

// Record a completed operation. The run stops only after all operations that complete at this instant have
// been recorded.
void Devices::complete(std::uint64_t id) {
    completions_.push_back({id, clock_.now()});
    if (!clock_.pending(settle_)) settle_ = clock_.after<&Devices::stop>(0, this);
}

const std::vector<Completion>& Devices::advance(Fs limit, const std::function<bool(Fs)>& keep_going) {
    completions_.clear();
    if (limit >= 0 && limit < clock_.now()) return completions_;
    packet::Timer end;
    if (limit >= 0) end = clock_.after<&Devices::stop>(limit - clock_.now(), this);
    clock_.run(keep_going);
    clock_.cancel(end);
    clock_.cancel(settle_);
    return completions_;
}

std::vector<Stuck> Devices::stuck() const {
    std::vector<Stuck> found;
    for (const auto& [id, kernel] : kernels_) {
        if (kernel->placed < kernel->workgroups().size())
            found.push_back({id, kernel->member, static_cast<std::int32_t>(kernel->placed), kNone,
                             Worker::Waits::Nothing});
    }
    for (const auto& [pointer, worker] : workers_) {
        found.push_back({worker->kernel().id, worker->kernel().member, worker->number(), worker->op_place(),
                         worker->waits()});
    }
    std::sort(found.begin(), found.end(), [](const Stuck& a, const Stuck& b) {
        return std::tie(a.kernel, a.member, a.workgroup) < std::tie(b.kernel, b.member, b.workgroup);
    });
    return found;
}

}  // namespace chakrascope::gpu

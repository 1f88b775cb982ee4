#include "worker.h"

#include <algorithm>

#include "devices.h"

namespace chakrascope::gpu {
namespace {

// The number of batches into which the fast fabric splits the requests of a workgroup.
constexpr std::uint32_t kBatches = 16;

// Return the number of lines that are moved for `lines` lines of data. `wire` is the number of bytes moved
// per byte of data.
std::uint64_t wire_lines(double wire, std::uint64_t lines) {
    if (wire == 1) return lines;
    return static_cast<std::uint64_t>(std::ceil(wire * static_cast<double>(lines) - 1e-9));
}

// Return a hash of a number; consecutive numbers have unrelated hashes.
std::uint64_t scatter(std::uint64_t number) {
    number = (number ^ (number >> 33)) * 0xff51afd7ed558ccdull;
    number = (number ^ (number >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return (number ^ (number >> 33)) >> 8;
}

template <class Function>
void for_each(const Program& program, std::uint32_t first, std::uint32_t count, Function function) {
    for (std::uint32_t access = first; access < first + count; ++access) function(program.accesses[access]);
}

}  // namespace

void Batch::loaded(std::uint32_t count) {
    Devices& devices = worker->devices();
    const Place place = worker->place();  // the worker may not exist afterwards
    devices.counts().loaded_lines += count;
    loads_left -= count;
    if (loads_left == 0) worker->batch_loaded(*this);
    devices.release(place, count);
}

void Posting::sent(std::uint32_t count) { worker->devices().release(worker->place(), count); }

void Posting::delivered(std::int32_t gpu, std::uint32_t count) {
    Run& run = worker->run();
    worker->devices().counts().delivered_lines += count;
    const auto mine = [&](const auto& entry) { return run.gpu(entry.first) == gpu; };
    auto& entry = *std::find_if(to_come.begin(), to_come.end(), mine);
    entry.second -= count;
    if (complete && entry.second == 0) tell(entry.first);
}

void Posting::acknowledged(std::uint32_t count) {
    unacknowledged -= count;
    Worker& stores = *worker;
    if (complete) retire();
    stores.stored(count);
}

void Posting::close() {
    complete = true;
    for (const auto& [member, lines] : to_come) {
        if (lines == 0) tell(member);
    }
    retire();
}

void Posting::tell(std::int32_t member) {
    if (target->counter != kNone) worker->devices().add(worker->run(), member, target->counter, 1);
}

void Posting::retire() {
    if (unacknowledged == 0) worker->devices().free(*this);
}

Worker::Worker(Devices& devices, Kernel& kernel, std::int32_t number, Place place)
    : devices_(devices),
      kernel_(kernel),
      program_(*kernel.run->program),
      number_(number),
      place_(place),
      op_(kernel.workgroups()[static_cast<std::size_t>(number)].first_op),
      last_op_(kernel.workgroups()[static_cast<std::size_t>(number)].last_op),
      wavefronts_(static_cast<std::uint32_t>(
          std::max(1, kernel.workgroups()[static_cast<std::size_t>(number)].wavefronts))) {}

std::int32_t Worker::member(std::int32_t rank) const {
    const auto own = static_cast<std::size_t>(kernel_.member);
    const std::size_t shifted = static_cast<std::size_t>(rank) + own - program_.pattern(kernel_.member);
    return static_cast<std::int32_t>(shifted < program_.size() ? shifted : shifted - program_.size());
}

void Worker::later(double ns, void (Worker::*step)()) {
    step_ = step;
    devices_.clock().post<&Worker::take_step>(to_fs(ns), this);
}

void Worker::start() {
    if (op_ == last_op_) return finish();
    began_ = devices_.clock().now();
    later(devices_.machine().op_ns, &Worker::begin_op);
}

void Worker::next_op() {
    waits_ = Waits::Nothing;
    if (devices_.settings().stamps) {
        const Fs now = devices_.clock().now();
        devices_.stamp({kernel_.id, kernel_.member, number_, op().place, began_, now});
    }
    ++op_;
    start();
}

void Worker::begin_op() {
    const Machine& machine = devices_.machine();
    switch (op().kind) {
        case OpKind::Data:
            return move_data();
        case OpKind::Signal:
            return signal();
        case OpKind::Take:
        case OpKind::Await:
            use_ = 0;
            return later(machine.poll_ns, &Worker::check);
        case OpKind::Sync:
            return later(machine.sync_ns, &Worker::next_op);
        case OpKind::Barrier:
            return meet();
        case OpKind::Fence:
            waits_ = Waits::Stores;
            return go_on_if_idle();
        case OpKind::Proxy:
            return hand_to_proxy();
        case OpKind::Flush:
            waits_ = Waits::Proxies;
            return go_on_if_idle();
        case OpKind::Pause:
            return later(op().ns, &Worker::next_op);
    }
}

// Finish the worker. Its stores must all be visible before its kernel ends.
void Worker::finish() {
    waits_ = Waits::End;
    go_on_if_idle();
}

void Worker::go_on_if_idle() {
    if (waits_ == Waits::Stores && unacknowledged_ == 0) {
        waits_ = Waits::Nothing;
        later(devices_.machine().fence_ns, &Worker::next_op);
    } else if (waits_ == Waits::Proxies && transfers_ == 0) {
        waits_ = Waits::Nothing;
        later(devices_.machine().poll_ns, &Worker::next_op);
    } else if (waits_ == Waits::End && unacknowledged_ == 0 && transfers_ == 0) {
        devices_.done(*this);
    }
}

void Worker::stored(std::uint64_t lines) {
    unacknowledged_ -= lines;
    go_on_if_idle();
}

void Worker::transferred() {
    --transfers_;
    go_on_if_idle();
}

// The following functions handle counters for which the operation waits.

void Worker::check() {
    for (; use_ < op().uses; ++use_) {
        const CounterUse& use = program_.uses[op().first_use + use_];
        Counter& counter = run().counter(kernel_.member, use.counter);
        if (counter.value < use.value) {
            waits_ = Waits::Counter;
            counter.waiting.push_back(this);
            return;
        }
        if (op().kind == OpKind::Take) counter.value -= use.value;
    }
    next_op();
}

void Worker::woken() {
    const bool meets = waits_ == Waits::Barrier;
    waits_ = Waits::Nothing;
    const Machine& machine = devices_.machine();
    later(meets ? machine.sync_ns : machine.poll_ns, meets ? &Worker::next_op : &Worker::check);
}

void Worker::signal() {
    for (std::uint32_t use = op().first_use; use < op().first_use + op().uses; ++use)
        devices_.send_control(*this, member(program_.uses[use].rank), program_.uses[use]);
    next_op();
}

void Worker::meet() {
    const CounterUse& use = program_.uses[op().first_use];
    Counter& barrier = run().counter(kernel_.member, use.counter);
    waits_ = Waits::Barrier;
    barrier.waiting.push_back(this);
    if (++barrier.value < use.value) return;
    barrier.value = 0;
    for (Worker* worker : std::exchange(barrier.waiting, {})) worker->woken();
}

void Worker::hand_to_proxy() {
    const Access& target = program_.accesses[op().first_target];
    const double wire = std::ceil(static_cast<double>(op().bytes) * target.wire);
    ++transfers_;
    devices_.hand_to_proxy(*this, member(target.rank), static_cast<std::uint64_t>(wire), target.counter);
    next_op();
}

// Data operations run in batches of lines.

std::uint32_t Worker::wavefronts_together() const {
    if (devices_.settings().detailed) return 1;
    return (wavefronts_ + kBatches - 1) / kBatches;
}

// Return the number of lines per batch. The number is limited by the lines in flight of concurrent
// wavefronts, the requests of the compute unit, and each wavefront's share of the work.
std::uint32_t Worker::batch_lines() const {
    const Machine& machine = devices_.machine();
    double sources = 0, targets = 0;
    for_each(program_, op().first_source, op().sources, [&](const Access& each) { sources += each.wire; });
    for_each(program_, op().first_target, op().targets, [&](const Access& each) { targets += each.wire; });
    const double most = machine.requests_per_unit / std::max({1.0, sources, targets});
    const std::uint32_t together = wavefronts_together();
    const std::uint64_t parts = (wavefronts_ + together - 1) / together;
    const std::uint64_t fair = (lines_ + parts - 1) / parts;
    const std::uint64_t asked = std::uint64_t{together} * static_cast<std::uint64_t>(machine.unroll);
    return static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, std::min({asked, fair, static_cast<std::uint64_t>(most)})));
}

void Worker::move_data() {
    lines_ = (op().bytes + kLineBytes - 1) / kLineBytes;
    next_line_ = 0;
    // Addresses are unknown, so each operation starts at a pseudo-random memory channel, the same for all
    // copies of a rank.
    const auto gpu = static_cast<std::uint64_t>(place_.gpu);
    first_line_ =
        scatter(std::uint64_t{op_} << 20 | (program_.copies > 1 ? program_.pattern(kernel_.member) : gpu));
    for_each(program_, op().first_target, op().targets, [&](const Access& target) {
        Posting& posting = *postings_.emplace_back(&devices_.new_posting(*this, target));
        if (target.rank != kNone) {
            posting.to_come.emplace_back(member(target.rank), 0);
        } else {
            for (const std::int32_t member : program_.groups[static_cast<std::size_t>(target.group)])
                posting.to_come.emplace_back(member, 0);
        }
    });
    batch_lines_ = batch_lines();
    const std::uint32_t together = wavefronts_together();
    const std::uint64_t batches = (lines_ + batch_lines_ - 1) / batch_lines_;
    const std::uint64_t parts = (wavefronts_ + together - 1) / together;
    // At least one batch, even if there is no data.
    batches_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, std::min(parts, batches)));
    const std::uint32_t count = batches_;
    for (std::uint32_t batch = 0; batch < count; ++batch) next_batch(devices_.new_batch(*this));
}

void Worker::next_batch(Batch& batch) {
    if (next_line_ < lines_) {
        batch.first = first_line_ + next_line_;
        batch.lines = static_cast<std::uint32_t>(std::min<std::uint64_t>(batch_lines_, lines_ - next_line_));
        batch.storing = op().sources == 0;
        next_line_ += batch.lines;
        return devices_.ask(batch);
    }
    devices_.free(batch);
    if (--batches_ > 0) return;
    for (Posting* posting : postings_) posting->close();
    postings_.clear();
    next_op();
}

// Return the number of lines that a batch moves for an access. The number is rounded up once per operation
// instead of once per batch.
std::uint32_t Worker::lines_of(const Access& access, const Batch& batch) const {
    const std::uint64_t begin = batch.first - first_line_;
    const std::uint64_t end = wire_lines(access.wire, begin + batch.lines);
    return static_cast<std::uint32_t>(end - wire_lines(access.wire, begin));
}

std::uint32_t Worker::lines_of(const Batch& batch) const {
    std::uint32_t lines = 0;
    const std::uint32_t first = batch.storing ? op().first_target : op().first_source;
    for_each(program_, first, batch.storing ? op().targets : op().sources,
             [&](const Access& access) { lines += lines_of(access, batch); });
    return lines;
}

void Worker::ask(Batch& batch) {
    if (batch.storing) return store(batch);
    batch.loads_left = lines_of(batch);
    for_each(program_, op().first_source, op().sources, [&](const Access& source) {
        const std::uint32_t lines = lines_of(source, batch);
        devices_.counts().asked_lines += lines;
        if (source.rank != kNone) {
            devices_.fabric().load(place_, run().gpu(member(source.rank)), batch.first, lines, batch);
        } else {
            devices_.fabric().load_sum(place_, run().groups[static_cast<std::size_t>(source.group)],
                                       batch.first, lines, batch);
        }
    });
}

void Worker::batch_loaded(Batch& batch) {
    if (op().sources < 2) return batch_reduced(&batch);
    const std::uint64_t bytes = std::uint64_t{batch.lines} * kLineBytes * op().sources;
    packet::Clock& clock = devices_.clock();
    clock.post<&Worker::batch_reduced>(devices_.reduce(place_, bytes) - clock.now(), this, &batch);
}

void Worker::batch_reduced(Batch* batch) {
    if (op().targets == 0) return next_batch(*batch);
    batch->storing = true;
    devices_.ask(*batch);
}

// Post the stores of a batch. Wavefronts do not wait for these stores.
void Worker::store(Batch& batch) {
    for (std::uint32_t number = 0; number < op().targets; ++number) {
        const Access& target = program_.accesses[op().first_target + number];
        Posting& posting = *postings_[number];
        const std::uint32_t lines = lines_of(target, batch);
        posting.unacknowledged += lines;
        unacknowledged_ += lines;
        for (auto& entry : posting.to_come) entry.second += lines;
        devices_.counts().stored_lines += lines * posting.to_come.size();
        if (target.rank != kNone) {
            devices_.fabric().store(place_, run().gpu(member(target.rank)), batch.first, lines, posting);
        } else {
            devices_.fabric().multicast(place_, run().groups[static_cast<std::size_t>(target.group)],
                                        batch.first, lines, posting);
        }
    }
    next_batch(batch);
}

}  // namespace chakrascope::gpu

#include "scheduler.h"

#include <algorithm>

#include "../simulation/cluster.h"
#include "../workload/rank.h"
#include "algorithm.h"

namespace chakrascope::engine {
namespace {

constexpr std::int32_t kSeveralWays = -2;

// Return the tag of a stream, which is greater than the tags of point-to-point messages. Streams are
// counted per group. Ranks that belong to different groups therefore agree on the tags of the next
// collective.
std::int64_t stream_tag(std::int64_t group, std::uint64_t turn) {
    return ((group + 1) << 32) + static_cast<std::int64_t>(turn);
}

}  // namespace

StreamScheduler::StreamScheduler(Rank& rank) : rank_(rank) {
    const Config& config = rank.cluster().config;
    const auto queues = static_cast<std::size_t>(config.num_queues_per_dim);
    concurrency_ = (static_cast<std::size_t>(config.active_chunks_per_dimension) + queues - 1) / queues;
    queues_.resize(queues * config.topology.size());
}

bool StreamScheduler::launch(const CollectiveRequest& request) {
    Planner& planner = this->planner(request.group);
    const Choice choice = planner.choose(request);
    const Planner::Chunks chunks = planner.split(request, choice);
    const std::int64_t priority = next_priority(request);
    std::uint64_t& turn = streams_of_group_[request.group];
    if (chunks.count == 0) return false;
    CollectiveRun* run = nullptr;
    for (std::uint64_t i = 0; i < chunks.count; ++i) {
        std::vector<Phase> phases = planner.plan(request, choice, i, turn, chunks.size);
        if (phases.empty()) return false;
        if (run == nullptr)
            run = &(runs_[request.node] = {request.node,
                                           request.group,
                                           chunks.count,
                                           priority,
                                           ++serials_,
                                           request.abreast > 0,
                                           {}});
        Stream& stream = create(*run, std::move(phases), stream_tag(request.group, turn));
        ++turn;
        proceed(stream);
    }
    return true;
}

// Return the planner of a group, which assigns queues round-robin. If groups can overtake each other,
// each group has a separate planner, because ranks then agree only on the order of chunks within a
// group.
Planner& StreamScheduler::planner(std::int64_t group) {
    Cluster& cluster = rank_.cluster();
    const Config& config = cluster.config;
    return planners_
        .try_emplace(config.overtaking > 0 ? group : 0, config, cluster.groups, cluster.implementations,
                     rank_.id())
        .first->second;
}

std::int64_t StreamScheduler::next_priority(const CollectiveRequest& request) {
    const SchedulingPolicy policy = rank_.cluster().config.scheduling_policy;
    if (policy == SchedulingPolicy::Explicit) return request.priority;
    return policy == SchedulingPolicy::Fifo ? priorities_-- : priorities_++;
}

Stream& StreamScheduler::create(CollectiveRun& run, std::vector<Phase> phases, std::int64_t tag) {
    Stream* stream = nullptr;
    if (free_.empty()) {
        stream = &pool_.emplace_back();
    } else {
        stream = free_.back();
        free_.pop_back();
        *stream = Stream{};
    }
    stream->run = &run;
    stream->group = run.group;
    stream->phases = std::move(phases);
    stream->tag = tag;
    return *stream;
}

void StreamScheduler::recycle(Stream& stream) {
    stream.algorithm.reset();
    free_.push_back(&stream);
}

void StreamScheduler::proceed(Stream& stream) {
    const Mover outer = mover_;
    if (stream.queue >= 0) {
        const EventQueue& events = rank_.cluster().events;
        mover_ = {stream.run->serial, 2 * stream.queue + (stream.phase().max_tree ? 1 : 0)};
        watch_order(rank_.moments().phase(events.now(), events.registered()));
    }
    move_on(stream);
    mover_ = outer;
}

void StreamScheduler::move_on(Stream& stream) {
    const std::int32_t old = stream.queue;
    const bool last = stream.next_phase == stream.phases.size();
    if (last) ended(stream);
    if (old >= 0) {
        if (rank_.cluster().config.overtaking > 0) rank_.cluster().attendance.end(stream);
        watch_ties(queues_[old]);
        watch_order(rank_.moments().leave(old, is_mixed(queues_[old])));
        auto& list = queues_[old].streams;
        list.erase(std::find(list.begin(), list.end(), &stream));
    }
    if (last) {
        recycle(stream);
        release(old);
        return;
    }
    const std::int32_t queue = stream.phases[stream.next_phase++].queue;
    stream.queue = queue;
    stream.started = false;
    stream.listed = rank_.cluster().events.now();
    stream.listed_by = rank_.cluster().events.origin();
    watch_ties(queues_[queue]);
    insert(queues_[queue], stream);
    if (old >= 0) watch_order(rank_.moments().come(queue, is_mixed(queues_[queue])));
    if (old >= 0) release(old);
    pump(queue);
}

void StreamScheduler::ended(Stream& stream) {
    CollectiveRun& run = *stream.run;
    // If chunks of different queues end in one tick, the last chunk to end may differ between ranks.
    if (!run.ends.note(rank_.cluster().events.now(), mover_)) mover_.way = kSeveralWays;
    if (--run.streams_left > 0) return;
    watch_order(rank_.moments().collective());
    const std::uint32_t node = run.node;
    runs_.erase(node);
    rank_.collective_ended(node);
}

// Insert the chunk after all chunks that have started or are at least as urgent.
void StreamScheduler::insert(Queue& queue, Stream& stream) {
    const auto ahead = [&](const Stream* other) { return other->started || yields(stream, *other); };
    queue.streams.insert(std::find_if_not(queue.streams.begin(), queue.streams.end(), ahead), &stream);
}

bool StreamScheduler::yields(const Stream& stream, const Stream& other) const {
    const std::int64_t mine = stream.run->priority, theirs = other.run->priority;
    using Policy = IntraDimensionPolicy;
    const Policy policy = rank_.cluster().config.intra_dimension_policy;
    if (mine != theirs) return theirs > mine;
    const bool earlier = rank_.cluster().config.default_policies() || other.tag <= stream.tag;
    if (policy == Policy::Fifo) return earlier;
    const auto urgency = [&](const Stream& waiting) -> std::uint64_t {
        if (policy == Policy::SmallestFirst) return waiting.phase().size;
        if (policy == Policy::LessRemainingPhaseFirst) return waiting.phases.size() - waiting.next_phase;
        return waiting.phase().kind == Collective::AllGather ? 1 : 0;  // the policy reduce-first
    };
    const std::uint64_t own = urgency(stream), before = urgency(other);
    return before < own || (before == own && earlier);
}

void StreamScheduler::watch_ties(Queue& queue) {
    Cluster& cluster = rank_.cluster();
    if (cluster.fold != nullptr && !queue.watch.note(cluster.events.now(), mover_)) cluster.tied = true;
}

void StreamScheduler::watch_order(bool certain) {
    Cluster& cluster = rank_.cluster();
    if (cluster.meetings.active() && !certain) cluster.tied = true;
}

// Return whether chunks of several collectives wait in the queue, and one chunk may overtake another.
bool StreamScheduler::is_mixed(const Queue& queue) {
    const CollectiveRun* run = nullptr;
    for (const Stream* stream : queue.streams) {
        if (stream->started) continue;
        if (run != nullptr && run != stream->run) return true;
        run = stream->run;
    }
    return false;
}

void StreamScheduler::release(std::int32_t queue) {
    --queues_[queue].running;
    pump(queue);
}

// Start the next chunks of a queue. If chunks come from several dimensions, different ranks would start
// the chunks of one tick in different orders and then wait for each other. Chunks from several
// dimensions are therefore started only after all chunks of the tick have arrived.
void StreamScheduler::pump(std::int32_t queue) {
    Cluster& cluster = rank_.cluster();
    const auto place = static_cast<std::uint64_t>(queue);
    if (cluster.config.default_policies()) return start_waiting(place);
    cluster.events.after(rank_.id(), 0, bind<&StreamScheduler::start_waiting>(this, place));
}

void StreamScheduler::start_waiting(std::uint64_t place) {
    Queue& queue = queues_[place];
    if (rank_.cluster().config.overtaking == 0) {
        for (std::size_t i = queue.running; i < queue.streams.size(); ++i) {
            if (queue.running >= concurrency_ && !goes_along(queue, *queue.streams[i])) return;
            start(queue, *queue.streams[i]);
        }
        return;
    }
    while (queue.running < queue.streams.size()) {
        const auto along = std::find_if(
            queue.streams.begin(), queue.streams.end(),
            [&](const Stream* stream) { return !stream->started && goes_along(queue, *stream); });
        Stream* next = nullptr;
        if (along != queue.streams.end()) {
            next = *along;
        } else if (queue.running < concurrency_) {
            next = *std::find_if(queue.streams.begin(), queue.streams.end(),
                                 [](const Stream* stream) { return !stream->started; });
        } else {
            next = overtaker(queue);
            if (next == nullptr) return;
            ++rank_.cluster().overtaken;
        }
        rank_.cluster().attendance.begin(*next);
        start(queue, *next);
    }
}

bool StreamScheduler::goes_along(const Queue& queue, const Stream& stream) {
    return stream.run->sends_first &&
           std::any_of(queue.streams.begin(), queue.streams.end(),
                       [&](const Stream* other) { return other->started && other->run == stream.run; });
}

void StreamScheduler::start(Queue& queue, Stream& stream) {
    EventQueue& events = rank_.cluster().events;
    stream.started = true;
    stream.algorithm = make_algorithm(rank_, stream);
    ++queue.running;
    // A chunk that starts in the tick of its arrival has not waited for another chunk to free a slot.
    const Origin outer = events.origin();
    if (stream.listed == events.now()) events.set_origin(stream.listed_by);
    stream.algorithm->start();
    events.set_origin(outer);
}

// Groups make progress independently of each other, like communicators with one stream each. A chunk
// waits for earlier chunks of its group, and for other groups only while they are active. If no chunk
// makes progress, the earliest chunk that all members of its group have issued is never blocked.
// Therefore, only the programs themselves can cause a deadlock.
Stream* StreamScheduler::overtaker(const Queue& queue) const {
    const Attendance& attendance = rank_.cluster().attendance;
    std::unordered_map<std::int64_t, Stream*> earliest;
    std::size_t at_work = 0;
    for (Stream* stream : queue.streams) {
        if (stream->started && attendance.complete(*stream)) {
            ++at_work;
            continue;
        }
        Stream*& first = earliest.try_emplace(stream->group, stream).first->second;
        if (stream->tag < first->tag) first = stream;
    }
    if (at_work >= concurrency_) return nullptr;
    for (Stream* stream : queue.streams) {
        if (!stream->started && earliest.at(stream->group) == stream) return stream;
    }
    return nullptr;
}

}  // namespace chakrascope::engine

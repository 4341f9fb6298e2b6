import java.io.File;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store with RocketMQ's own code, reads every queue, queries every key, and prints a line for each.
 *
 * Arguments: folder, bytes of a log file, units of a queue file, index slots, index entries, and optionally a topic. Ten
 * messages are appended to the topic at the end.
 */
public class ReadStore {
    private static DefaultMessageStore open(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[0]);
        config.setStorePathCommitLog(args[0] + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(args[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(args[2]) * 20);
        config.setMaxHashSlotNum(Integer.parseInt(args[3]));
        config.setMaxIndexNum(Integer.parseInt(args[4]));
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);
        config.setDuplicationEnable(false);
        BrokerConfig broker = new BrokerConfig();
        DefaultMessageStore store = new DefaultMessageStore(
            config,
            new BrokerStatsManager("test", false),
            (topic, queueId, logicOffset, tagsCode, time, filter, properties) -> { },
            broker,
            new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        return store;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes == null ? new byte[0] : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    public static void main(String[] args) throws Exception {
        DefaultMessageStore store = open(args);
        try {
            System.out.println("bounds\t" + store.getMinPhyOffset() + "\t" + store.getMaxPhyOffset());
            for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueueInterface>> topic
                : store.getQueueStore().getConsumeQueueTable().entrySet()) {
                for (ConsumeQueueInterface queue : topic.getValue().values()) {
                    readQueue(store, topic.getKey(), queue.getQueueId());
                }
            }
            if (args.length > 5) {
                append(store, args[5]);
            }
        } finally {
            store.shutdown();
        }
        System.exit(0);
    }

    private static void readQueue(DefaultMessageStore store, String topic, int queueId) throws Exception {
        long at = store.getMinOffsetInQueue(topic, queueId);
        long end = store.getMaxOffsetInQueue(topic, queueId);
        System.out.println("queue\t" + topic + "\t" + queueId + "\t" + at + "\t" + end);
        while (at < end) {
            GetMessageResult result = store.getMessage("g", topic, queueId, at, 32, null);
            if (result == null || result.getMessageBufferList().isEmpty()) {
                System.out.println("stuck\t" + topic + "\t" + queueId + "\t" + at + "\t"
                    + (result == null ? null : result.getStatus()));
                return;
            }
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                MessageExt message = MessageDecoder.decode(buffer, true, false, false);
                System.out.println("message\t" + message.getCommitLogOffset() + "\t" + message.getQueueOffset() + "\t"
                    + message.getTopic() + "\t" + queueId + "\t" + message.getMsgId() + "\t" + hex(message.getBody()) + "\t"
                    + message.getStoreTimestamp());
                String keys = message.getProperties().get("KEYS");
                if (keys != null) {
                    for (String key : keys.split(" ")) {
                        query(store, topic, key, message);
                    }
                }
            }
            at = result.getNextBeginOffset();
            result.release();
        }
    }

    private static void query(DefaultMessageStore store, String topic, String key, MessageExt message) throws Exception {
        QueryMessageResult found = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        boolean has = false;
        for (ByteBuffer buffer : found.getMessageBufferList()) {
            MessageExt each = MessageDecoder.decode(buffer, true, false, false);
            has |= each.getCommitLogOffset() == message.getCommitLogOffset();
        }
        found.release();
        System.out.println("key\t" + message.getCommitLogOffset() + "\t" + key + "\t" + has);
    }

    private static void append(DefaultMessageStore store, String topic) throws Exception {
        for (int number = 0; number < 10; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(topic);
            message.setBody(("from java " + number).getBytes());
            message.setKeys("java" + number);
            message.setQueueId(0);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            System.out.println("put\t" + store.putMessage(message).getPutMessageStatus());
        }
        Thread.sleep(1500);
    }
}

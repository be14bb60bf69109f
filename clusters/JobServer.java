import org.apache.beam.runners.flink.FlinkJobServerDriver;

/**
 * Beam's job server, without what it sends to Flink with every job: all files of its class path. The cluster of
 * flink.py has them in its library. `java -cp JARS JobServer.java OPTIONS` compiles and runs this.
 */
public class JobServer {
  public static void main(String[] options) throws Exception {
    // Only looked at to find what to send; classes are loaded by what Java made of it when it started.
    System.setProperty("java.class.path", "");
    FlinkJobServerDriver.main(options);
  }
}
